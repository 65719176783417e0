"""Shows each task of a launched cluster in its own tmux pane (`ps_train launch --tmux`)."""
