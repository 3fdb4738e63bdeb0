"""What is looked at beside a run, and what looking costs."""
