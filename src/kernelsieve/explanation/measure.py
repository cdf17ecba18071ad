"""What shares are shares of: said wherever they are shown."""

MEASURE = (
    "Shares are of the variance of the predictions if columns were independent, each distributed "
    "as in training. They describe the model; they are not causes."
)
