"""Differential maintenance: from the plan of a query to the steps that keep its result up to date."""
