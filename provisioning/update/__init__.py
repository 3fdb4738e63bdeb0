"""Updates: releases that devices can go to, who gets which, and the supervisor that goes there and back on the device."""
