"""All tilings that the loop nests of a convolution accept: counted, listed and drawn."""
