"""Whose memory leaves a device. Pure."""
