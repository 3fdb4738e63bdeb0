"""Updates: releases that devices can go to, who gets which, and the supervisor that switches and rolls back on the device."""
