"""The pictures of the documentation: of one measured pair of models, of one simulated fleet, and of one simulated board."""
