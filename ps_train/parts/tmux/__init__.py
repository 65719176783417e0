"""Shows each task of a launched cluster in a tmux pane of its own (`ps_train launch --tmux`)."""
