"""How the measured rows of each class are run on the model."""
