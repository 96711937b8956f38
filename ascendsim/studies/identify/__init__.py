"""Find a device's accumulation model: sums whose results differ, and the models that agree with them.

vectors     sums that separate models, as two matrices
cases       the same sums as a matrix product and as both gradients, by format; what the simulator answers
folder      inputs, a script that runs them, and outputs, in a folder
candidates  the models that may be, the ways in which a kernel may cut a reduction, what each would answer
judge       the candidates that agree with every answer, and what would split them
evidence    published figures of float32, and how near to them each model comes
"""
