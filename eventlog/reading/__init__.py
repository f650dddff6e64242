"""The read path: settled horizon, followers, subscriptions and folds."""
