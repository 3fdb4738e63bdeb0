"""Data sets: folders of photographs, and the ground truth that files hold; one file per format."""
