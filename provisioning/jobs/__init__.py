"""Jobs on the server: what each device was asked to do, how that stands, and who may start next."""
