//! How a command reacts to signals and to actions on the dashboard: a state machine without tasks and clocks.
//!
//! | policy | commands | earlier interrupts | Ctrl-C, SIGINT, SIGTERM | SIGHUP |
//! |---|---|---|---|---|
//! | stop | `up`, `prepare`, `demo`, `check --smoke` while the smoke runs, tasks before `slurm submit` | none | stop the ranks | detach |
//! | stop | | one | kill the ranks | detach, leave now |
//! | stop | | several | leave now | detach, leave now |
//! | detach | `attach`, `tui`, `logs -f`, `slurm attach`, `slurm logs -f`, `replay`, `sandbox` | none | detach | detach |
//! | detach | | one or more | detach, leave now | detach, leave now |
//! | cancel | `check`, `exec`, `stacks`, `ps`, `plan`, `render`, `logs`, `push`, `pull`, `slurm submit`, `slurm status`, `slurm logs`, `shell` until it is open | none | cancel, then disconnect | cancel, then disconnect |
//! | cancel | | one or more | leave now | leave now |
//! | abort | a launch that asks the hosts or waits for the lock | none | cancel | detach |
//! | abort | | one or more | leave now | detach, leave now |
//! | leave | `down`, `slurm cancel`, `slurm down` | any | leave now | ignored |
//!
//! SIGHUP that was ignored when the program started stays ignored (`hangup_signal`).
//!
//! A stop or a kill on the dashboard counts as one interrupt. A detach under the policy of this name also ends what `logs -f` and the followers
//! of a SLURM job wait for: a job in the queue or its end, logs that are fetched.

use crate::event::RunControl;
use crate::event::controls::{DashboardRole, UserAction};

/// Why the engine stops ranks after an action on the dashboard.
const DASHBOARD_REASON: &str = "requested on the dashboard";
/// What SIGINT is called if a key sent it.
const CTRL_C: &str = "Ctrl-C";

/// What the first Ctrl-C does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InterruptPolicy {
    /// Stops the ranks; the second kills them, the third leaves.
    Stop,
    /// Leaves the run running.
    Detach,
    /// Cancels a command that changes no run.
    Cancel,
    /// Cancels a launch before it has begun; a hang-up detaches.
    Abort,
    /// Leaves; a hang-up does not interrupt the command.
    Leave,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum StopInput {
    /// SIGINT while the terminal's keys send signals to this process: most likely Ctrl-C.
    Interrupt,
    /// SIGINT that no key sent, as from `timeout -s INT`: another process group has the terminal, or there is none.
    SentInterrupt,
    Terminate,
    Hangup,
    Action(UserAction),
}

/// The effects of an input, applied in this order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StopResponse {
    pub(crate) message: Option<String>,
    /// No further step starts.
    pub(crate) cancel_steps: bool,
    /// What the command waits for before it follows a run ends: nothing reads its controls there. Steps that have begun go on.
    pub(crate) cancel_waits: bool,
    /// Leave without waiting for the hosts.
    pub(crate) leave_now: bool,
    /// Launch the plan that the dashboard shows.
    pub(crate) start: bool,
    pub(crate) control: Option<RunControl>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum InterruptCount {
    None,
    One,
    Several,
}

impl InterruptCount {
    fn next(self) -> InterruptCount {
        if self == InterruptCount::None { InterruptCount::One } else { InterruptCount::Several }
    }
}

/// The stop ladder of one command.
#[derive(Debug)]
pub(crate) struct StopLadder {
    policy: InterruptPolicy,
    interrupts: InterruptCount,
    first_signal: Option<i32>,
    stopped_by_key: bool,
}

impl StopLadder {
    pub(crate) fn new(policy: InterruptPolicy) -> StopLadder {
        StopLadder { policy, interrupts: InterruptCount::None, first_signal: None, stopped_by_key: false }
    }

    pub(crate) fn handle(&mut self, input: StopInput) -> StopResponse {
        let mut response = self.respond(input);
        response.cancel_waits = self.policy == InterruptPolicy::Detach && response.control == Some(RunControl::Detach);
        response
    }

    fn respond(&mut self, input: StopInput) -> StopResponse {
        match input {
            StopInput::Interrupt | StopInput::Action(UserAction::Interrupt) => self.handle_signal(2, CTRL_C),
            StopInput::SentInterrupt => self.handle_signal(2, "SIGINT"),
            StopInput::Terminate => self.handle_signal(15, "SIGTERM"),
            StopInput::Hangup | StopInput::Action(UserAction::Hangup) => self.handle_hangup(),
            StopInput::Action(action) => self.handle_action(action),
        }
    }

    fn handle_action(&mut self, action: UserAction) -> StopResponse {
        let reason = DASHBOARD_REASON.to_owned();
        let control = match action {
            UserAction::Start => return StopResponse { start: true, ..StopResponse::default() },
            UserAction::LeaveNow | UserAction::DashboardPanicked => {
                self.note_signal(2);
                return StopResponse { leave_now: true, ..StopResponse::default() };
            }
            UserAction::Stop => RunControl::Stop { reason },
            UserAction::Kill => RunControl::Kill { reason },
            UserAction::TearDown => RunControl::Teardown,
            UserAction::Restart => RunControl::Restart,
            _ => RunControl::Detach,
        };
        let ends_ranks = matches!(control, RunControl::Stop { .. } | RunControl::Kill { .. });
        if ends_ranks {
            self.note_signal(2);
            self.stopped_by_key = true;
            self.interrupts = self.interrupts.max(InterruptCount::One);
        }
        StopResponse { cancel_steps: ends_ranks, control: Some(control), ..StopResponse::default() }
    }

    fn handle_signal(&mut self, number: i32, name: &str) -> StopResponse {
        self.note_signal(number);
        let earlier = self.interrupts;
        self.interrupts = earlier.next();
        match (self.policy, earlier) {
            (InterruptPolicy::Detach, _) => detach(earlier),
            (InterruptPolicy::Stop, InterruptCount::None) => StopResponse {
                message: Some(match name {
                    CTRL_C => format!("{name}: stopping the ranks; press Ctrl-C again to kill"),
                    _ => format!("{name}: stopping the ranks; the next signal kills them"),
                }),
                cancel_steps: true,
                control: Some(RunControl::Stop { reason: name.to_owned() }),
                ..StopResponse::default()
            },
            (InterruptPolicy::Stop, InterruptCount::One) => StopResponse {
                message: Some(match name {
                    CTRL_C => format!("{name}: killing the ranks; press Ctrl-C again to leave without cleaning up"),
                    _ => format!("{name}: killing the ranks; the next signal leaves without cleaning up"),
                }),
                control: Some(RunControl::Kill { reason: format!("second {name}") }),
                ..StopResponse::default()
            },
            (InterruptPolicy::Abort, InterruptCount::None) => {
                StopResponse { message: Some(format!("{name}: stopping before the launch")), cancel_steps: true, ..StopResponse::default() }
            }
            (InterruptPolicy::Cancel, InterruptCount::None) => StopResponse { cancel_steps: true, ..StopResponse::default() },
            (InterruptPolicy::Stop, InterruptCount::Several)
            | (InterruptPolicy::Cancel | InterruptPolicy::Abort | InterruptPolicy::Leave, _) => {
                StopResponse { leave_now: true, ..StopResponse::default() }
            }
        }
    }

    /// A closed terminal never stops a run, and does not count as an interrupt for the command that launched it.
    fn handle_hangup(&mut self) -> StopResponse {
        if self.policy == InterruptPolicy::Leave {
            return StopResponse::default();
        }
        if self.policy == InterruptPolicy::Cancel {
            return self.handle_signal(1, "SIGHUP");
        }
        self.note_signal(1);
        let earlier = self.interrupts;
        if self.policy == InterruptPolicy::Detach {
            self.interrupts = earlier.next();
        }
        detach(earlier)
    }

    fn note_signal(&mut self, number: i32) {
        self.first_signal.get_or_insert(number);
    }

    /// Whether the next Ctrl-C is the second one.
    pub(crate) fn has_one_interrupt(&self) -> bool {
        self.interrupts == InterruptCount::One
    }

    /// It decides the exit code.
    pub(crate) fn first_signal(&self) -> Option<i32> {
        self.first_signal
    }

    /// Whether a key of the dashboard stopped the run, not a signal.
    pub(crate) fn is_stopped_by_key(&self) -> bool {
        self.stopped_by_key
    }

    pub(crate) fn dashboard_role(&self) -> DashboardRole {
        match self.policy {
            InterruptPolicy::Stop | InterruptPolicy::Abort => DashboardRole::Owner,
            InterruptPolicy::Detach | InterruptPolicy::Cancel | InterruptPolicy::Leave => DashboardRole::Observer,
        }
    }

    pub(crate) fn set_policy(&mut self, policy: InterruptPolicy) {
        self.policy = policy;
    }

    /// For the next launch of the same command.
    pub(crate) fn reset(&mut self) {
        *self = StopLadder::new(self.policy);
    }
}

impl StopResponse {
    /// No later input has an effect.
    pub(crate) fn is_last(&self) -> bool {
        self.leave_now && self.control.is_none()
    }
}

fn detach(earlier: InterruptCount) -> StopResponse {
    StopResponse { leave_now: earlier != InterruptCount::None, control: Some(RunControl::Detach), ..StopResponse::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    use InterruptPolicy::{Abort, Cancel, Detach, Leave, Stop};
    use StopInput::{Action, Hangup, Interrupt, SentInterrupt, Terminate};

    /// Policy, inputs, the effects of each input, the first signal.
    type Row = (InterruptPolicy, &'static [StopInput], &'static [&'static str], Option<i32>);

    fn describe(response: &StopResponse) -> String {
        let control = match &response.control {
            Some(RunControl::Stop { reason }) => format!("stop({reason})"),
            Some(RunControl::Kill { reason }) => format!("kill({reason})"),
            Some(control) => format!("{control:?}").to_lowercase(),
            None => String::new(),
        };
        let flags =
            [(response.start, "start"), (response.cancel_steps, "cancel"), (response.cancel_waits, "waits"), (response.leave_now, "leave")];
        let flags = flags.iter().filter(|(set, _)| *set).map(|(_, name)| (*name).to_owned());
        flags.chain([control]).filter(|effect| !effect.is_empty()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_input_has_the_effects_in_the_table() {
        const STOP: &str = "cancel stop(requested on the dashboard)";
        let table: &[Row] = &[
            (Stop, &[Interrupt, Interrupt, Interrupt], &["cancel stop(Ctrl-C)", "kill(second Ctrl-C)", "leave"], Some(2)),
            (Stop, &[SentInterrupt, SentInterrupt], &["cancel stop(SIGINT)", "kill(second SIGINT)"], Some(2)),
            (Stop, &[Terminate, Interrupt, Terminate], &["cancel stop(SIGTERM)", "kill(second Ctrl-C)", "leave"], Some(15)),
            (Stop, &[Action(UserAction::Interrupt), Terminate], &["cancel stop(Ctrl-C)", "kill(second SIGTERM)"], Some(2)),
            // A hang-up detaches, and does not count.
            (Stop, &[Hangup, Hangup, Interrupt], &["detach", "detach", "cancel stop(Ctrl-C)"], Some(1)),
            (Stop, &[Interrupt, Hangup], &["cancel stop(Ctrl-C)", "leave detach"], Some(2)),
            (
                Stop,
                &[Interrupt, Interrupt, Action(UserAction::Hangup)],
                &["cancel stop(Ctrl-C)", "kill(second Ctrl-C)", "leave detach"],
                Some(2),
            ),
            (Detach, &[Interrupt, Interrupt, Terminate], &["waits detach", "waits leave detach", "waits leave detach"], Some(2)),
            (Detach, &[Hangup, Interrupt], &["waits detach", "waits leave detach"], Some(1)),
            (Detach, &[Action(UserAction::Detach), Interrupt], &["waits detach", "waits detach"], Some(2)),
            // A stop on the dashboard counts as the first interrupt, also in a run that another command launched.
            (Stop, &[Action(UserAction::Stop), Interrupt, Interrupt], &[STOP, "kill(second Ctrl-C)", "leave"], Some(2)),
            (Detach, &[Action(UserAction::Stop), Interrupt], &[STOP, "waits leave detach"], Some(2)),
            (
                Stop,
                &[Action(UserAction::Kill), Action(UserAction::Kill), Terminate],
                &["cancel kill(requested on the dashboard)", "cancel kill(requested on the dashboard)", "kill(second SIGTERM)"],
                Some(2),
            ),
            (
                Stop,
                &[Action(UserAction::TearDown), Action(UserAction::Restart), Interrupt],
                &["teardown", "restart", "cancel stop(Ctrl-C)"],
                Some(2),
            ),
            (Detach, &[Action(UserAction::Start)], &["start"], None),
            (Stop, &[Action(UserAction::LeaveNow)], &["leave"], Some(2)),
            (Detach, &[Hangup, Action(UserAction::DashboardPanicked)], &["waits detach", "leave"], Some(1)),
            // A command that changes no run: the first signal cancels, the second does not wait for the hosts.
            (Cancel, &[Interrupt, Interrupt], &["cancel", "leave"], Some(2)),
            (Cancel, &[Terminate, Hangup], &["cancel", "leave"], Some(15)),
            (Cancel, &[Hangup, Interrupt], &["cancel", "leave"], Some(1)),
            (Abort, &[Interrupt, Terminate], &["cancel", "leave"], Some(2)),
            (Abort, &[Hangup, Interrupt, Hangup], &["detach", "cancel", "leave detach"], Some(1)),
            // A closed terminal does not interrupt it.
            (Leave, &[Interrupt], &["leave"], Some(2)),
            (Leave, &[Hangup, Terminate], &["", "leave"], Some(15)),
        ];
        for (policy, inputs, expected, signal) in table {
            let mut ladder = StopLadder::new(*policy);
            let responses: Vec<StopResponse> = inputs.iter().map(|input| ladder.handle(*input)).collect();
            assert_eq!(responses.iter().map(describe).collect::<Vec<_>>(), *expected, "{policy:?} {inputs:?}");
            assert_eq!(ladder.first_signal(), *signal, "{policy:?} {inputs:?}");
            let by_key = inputs.iter().any(|input| matches!(input, Action(UserAction::Stop | UserAction::Kill)));
            assert_eq!(ladder.is_stopped_by_key(), by_key, "{policy:?} {inputs:?}");
            assert!(responses.iter().all(|response| response.is_last() == (describe(response) == "leave")));
        }
    }

    #[test]
    fn message_names_the_effect_of_the_next_signal() {
        let mut ladder = StopLadder::new(Stop);
        let mut next = || ladder.handle(Terminate).message;
        assert_eq!(next().as_deref(), Some("SIGTERM: stopping the ranks; the next signal kills them"));
        assert_eq!(next().as_deref(), Some("SIGTERM: killing the ranks; the next signal leaves without cleaning up"));
        assert_eq!(next(), None);
        assert_eq!(StopLadder::new(Abort).handle(Interrupt).message.as_deref(), Some("Ctrl-C: stopping before the launch"));
        for policy in [Detach, Cancel, Leave] {
            assert_eq!(StopLadder::new(policy).handle(Interrupt).message, None);
        }
    }

    #[test]
    fn reset_forgets_earlier_interrupts() {
        let mut ladder = StopLadder::new(Detach);
        ladder.set_policy(Stop);
        assert_eq!(ladder.dashboard_role(), DashboardRole::Owner);
        ladder.handle(Action(UserAction::Stop));
        ladder.reset();
        assert_eq!((ladder.first_signal(), ladder.is_stopped_by_key()), (None, false));
        assert_eq!(describe(&ladder.handle(Interrupt)), "cancel stop(Ctrl-C)");
        ladder.set_policy(Detach);
        assert_eq!(
            (describe(&ladder.handle(Interrupt)).as_str(), ladder.dashboard_role()),
            ("waits leave detach", DashboardRole::Observer)
        );
    }
}
