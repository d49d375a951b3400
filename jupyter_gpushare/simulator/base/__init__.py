"""What all policies share: virtual time, kernels, devices, and the record of what happened."""
