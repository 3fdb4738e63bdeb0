"""Ground truth as files hold it: one file per format. COCO's documents and JSON indices are read by `vision.annotations`."""
