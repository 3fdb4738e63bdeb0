"""Sound: recordings as samples, the features that models take."""
