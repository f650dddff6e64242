"""The read path: the settled horizon, followers, subscriptions and folds."""
