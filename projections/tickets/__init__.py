"""Tables and lists of restaurants and tickets."""
