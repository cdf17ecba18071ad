"""What solves: Cholesky factors, conjugate gradients, operators, normal equations."""
