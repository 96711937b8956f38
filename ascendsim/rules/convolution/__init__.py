"""The checks of aclnnConvolutionBackward."""
