"""What `script/bench fairness` plays, and how it is judged: scores, measures of the effect log, caps by the trace."""
