"""Room for putting the agent on devices (enrol, image, apply, update); nothing lives here yet."""
