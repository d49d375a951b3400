"""Space on devices that no budget covers, for CUDA contexts, and what is in the way of memory."""
