// Package repair brings replicas back: it is what a node does for the repair jobs whose destination it is.
//
// A job is an object of the state machine (fsm.RepairJob); the Runner of its destination is the only one that moves it. A
// task is one job in this process: one method for each step of the job (steps), which looks at the world anew on entry, so
// that a step can be begun again after any crash. What has to outlive the process is in the job and in the staging on
// disk (storage.Staging); a task that is lost costs a question to the leader.
//
// A transfer fetches the sealed segments of a plan from several sources at once: workers of each source take the next
// chunk that is missing, so that a fast source does more; every chunk is verified against a manifest whose root is the
// catalogue's before it counts, and a source that sent others is dropped and told. A budget holds it to what clients
// leave over.
//
// The package changes no replicas of a range: learners are asked of the leader, voters are the leader's to make. It
// serves no segments: that is the other side.
package repair
