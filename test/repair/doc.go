// Package repair holds the drills of seal and repair with real vtopd processes: replicas that are missing, wiped,
// damaged or far behind come back among the voters while clients write and nodes die.
package repair
