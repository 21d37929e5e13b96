"""What torch-pjrt costs, as ratios against CPU torch in the same process. Run with ./dev bench."""
