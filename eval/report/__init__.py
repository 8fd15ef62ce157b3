"""Reports: one HTML file for one run or for several, with their figures."""
