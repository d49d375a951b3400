"""What all rooms of the scheduler's process need: its errors, and texts and files made safe."""
