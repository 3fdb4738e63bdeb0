"""How devices stand: what each last said, whether it is there, and whether it still measures as it used to."""
