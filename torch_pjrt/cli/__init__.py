"""The command `torch-pjrt`. Only this folder prints."""
