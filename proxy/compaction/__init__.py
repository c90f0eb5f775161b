"""One summary: made now, ahead, by hand or offline."""
