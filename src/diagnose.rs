//! Why a run failed, in words: signs in the stream of events, each with its meaning and what to do.
//!
//! Uses `event` and `state`, and is arithmetic like them. Holds no rules yet: `state` already tells who failed first, with the last lines,
//! and the recap shows them. The rule table (signs such as an out-of-memory kill, a busy port, an NCCL time-out) and the folding of
//! consequences under the first cause belong here, as a second fold beside [`RunState`](crate::state::RunState) that the reporter owns.
