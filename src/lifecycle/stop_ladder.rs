//! What a signal or an action at the dashboard does to a run: a state machine without tasks and clocks.
//!
//! | policy | asked before | Ctrl-C, SIGTERM | SIGHUP |
//! |---|---|---|---|
//! | stop | never | stop the ranks | detach |
//! | stop | once | kill the ranks | detach, leave now |
//! | stop | twice | leave now | detach, leave now |
//! | detach | never | detach | detach |
//! | detach | before | detach, leave now | detach, leave now |
//!
//! A stop or a kill that was asked for at the dashboard counts as asked once.

use crate::event::RunControl;
use crate::event::controls::{DashboardRole, UserAction};

/// Why the engine stops ranks after an action at the dashboard.
const DASHBOARD_REASON: &str = "asked for on the dashboard";

/// What Ctrl-C means: for the command that launched the run, or for one that only looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InterruptPolicy {
    /// Ctrl-C stops the run, then kills it, then leaves at once.
    Stop,
    Detach,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum StopInput {
    Interrupt,
    Terminate,
    Hangup,
    Action(UserAction),
}

/// What follows from it, in this order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StopResponse {
    pub(crate) message: Option<String>,
    /// No further step begins.
    pub(crate) cancel_steps: bool,
    /// Leave without waiting for the hosts.
    pub(crate) leave_now: bool,
    /// Start what the plan shows.
    pub(crate) start: bool,
    pub(crate) control: Option<RunControl>,
}

/// How often the person has asked the run to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Asked {
    Never,
    Once,
    Twice,
}

impl Asked {
    fn once_more(self) -> Asked {
        if self == Asked::Never { Asked::Once } else { Asked::Twice }
    }
}

/// The stop ladder of one command.
#[derive(Debug)]
pub(crate) struct StopLadder {
    policy: InterruptPolicy,
    asked: Asked,
    first_signal: Option<i32>,
    stopped_by_key: bool,
}

impl StopLadder {
    pub(crate) fn new(policy: InterruptPolicy) -> StopLadder {
        StopLadder { policy, asked: Asked::Never, first_signal: None, stopped_by_key: false }
    }

    pub(crate) fn handle(&mut self, input: StopInput) -> StopResponse {
        match input {
            StopInput::Interrupt | StopInput::Action(UserAction::Interrupt) => self.handle_signal(2, "Ctrl-C"),
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
            self.asked = self.asked.max(Asked::Once);
        }
        StopResponse { cancel_steps: ends_ranks, control: Some(control), ..StopResponse::default() }
    }

    fn handle_signal(&mut self, number: i32, name: &str) -> StopResponse {
        self.note_signal(number);
        let asked = self.asked;
        self.asked = asked.once_more();
        match (self.policy, asked) {
            (InterruptPolicy::Detach, _) => detach(asked),
            (InterruptPolicy::Stop, Asked::Never) => StopResponse {
                message: Some(format!("{name}: stopping the ranks; once more kills them")),
                cancel_steps: true,
                control: Some(RunControl::Stop { reason: name.to_owned() }),
                ..StopResponse::default()
            },
            (InterruptPolicy::Stop, Asked::Once) => StopResponse {
                message: Some(format!("{name}: killing the ranks; once more leaves at once")),
                control: Some(RunControl::Kill { reason: format!("second {name}") }),
                ..StopResponse::default()
            },
            (InterruptPolicy::Stop, Asked::Twice) => StopResponse { leave_now: true, ..StopResponse::default() },
        }
    }

    /// A terminal that goes away never stops a run; for the command that launched it, it does not count either.
    fn handle_hangup(&mut self) -> StopResponse {
        self.note_signal(1);
        let asked = self.asked;
        if self.policy == InterruptPolicy::Detach {
            self.asked = asked.once_more();
        }
        detach(asked)
    }

    /// The first one counts.
    fn note_signal(&mut self, number: i32) {
        self.first_signal.get_or_insert(number);
    }

    /// The signal that came first.
    pub(crate) fn first_signal(&self) -> Option<i32> {
        self.first_signal
    }

    /// Whether the stop was asked for by a key of the dashboard, and not by a signal.
    pub(crate) fn is_stopped_by_key(&self) -> bool {
        self.stopped_by_key
    }

    /// What the dashboard may offer.
    pub(crate) fn dashboard_role(&self) -> DashboardRole {
        if self.policy == InterruptPolicy::Stop { DashboardRole::Owner } else { DashboardRole::Observer }
    }

    pub(crate) fn set_policy(&mut self, policy: InterruptPolicy) {
        self.policy = policy;
    }

    /// Forgets what was asked: another launch begins.
    pub(crate) fn reset(&mut self) {
        *self = StopLadder::new(self.policy);
    }
}

impl StopResponse {
    /// Nothing that comes later can matter.
    pub(crate) fn is_last(&self) -> bool {
        self.leave_now && self.control.is_none()
    }
}

fn detach(asked: Asked) -> StopResponse {
    StopResponse { leave_now: asked != Asked::Never, control: Some(RunControl::Detach), ..StopResponse::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    use InterruptPolicy::{Detach, Stop};
    use StopInput::{Action, Hangup, Interrupt, Terminate};

    /// Policy, inputs, what each of them does, the first signal.
    type Row = (InterruptPolicy, &'static [StopInput], &'static [&'static str], Option<i32>);

    /// What one input does, in a word or two.
    fn describe(response: &StopResponse) -> String {
        let control = match &response.control {
            Some(RunControl::Stop { reason }) => format!("stop({reason})"),
            Some(RunControl::Kill { reason }) => format!("kill({reason})"),
            Some(control) => format!("{control:?}").to_lowercase(),
            None => String::new(),
        };
        let flags = [(response.start, "start"), (response.cancel_steps, "cancel"), (response.leave_now, "leave")];
        let flags = flags.iter().filter(|(set, _)| *set).map(|(_, name)| (*name).to_owned());
        flags.chain([control]).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_input_answers_as_the_table_says() {
        const STOP: &str = "cancel stop(asked for on the dashboard)";
        let table: &[Row] = &[
            (Stop, &[Interrupt, Interrupt, Interrupt], &["cancel stop(Ctrl-C)", "kill(second Ctrl-C)", "leave"], Some(2)),
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
            (Detach, &[Interrupt, Interrupt, Terminate], &["detach", "leave detach", "leave detach"], Some(2)),
            (Detach, &[Hangup, Interrupt], &["detach", "leave detach"], Some(1)),
            (Detach, &[Action(UserAction::Detach), Interrupt], &["detach", "detach"], Some(2)),
            // A stop at the dashboard is the first of the ladder, whoever launched the run.
            (Stop, &[Action(UserAction::Stop), Interrupt, Interrupt], &[STOP, "kill(second Ctrl-C)", "leave"], Some(2)),
            (Detach, &[Action(UserAction::Stop), Interrupt], &[STOP, "leave detach"], Some(2)),
            (
                Stop,
                &[Action(UserAction::Kill), Action(UserAction::Kill), Terminate],
                &["cancel kill(asked for on the dashboard)", "cancel kill(asked for on the dashboard)", "kill(second SIGTERM)"],
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
            (Detach, &[Hangup, Action(UserAction::DashboardPanicked)], &["detach", "leave"], Some(1)),
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
    fn person_is_told_what_the_next_signal_does() {
        let mut ladder = StopLadder::new(Stop);
        let mut next = || ladder.handle(Terminate).message;
        assert_eq!(next().as_deref(), Some("SIGTERM: stopping the ranks; once more kills them"));
        assert_eq!(next().as_deref(), Some("SIGTERM: killing the ranks; once more leaves at once"));
        assert_eq!(next(), None);
        assert_eq!(StopLadder::new(Detach).handle(Interrupt).message, None);
    }

    #[test]
    fn another_launch_begins_at_the_bottom() {
        let mut ladder = StopLadder::new(Detach);
        ladder.set_policy(Stop);
        assert_eq!(ladder.dashboard_role(), DashboardRole::Owner);
        ladder.handle(Action(UserAction::Stop));
        ladder.reset();
        assert_eq!((ladder.first_signal(), ladder.is_stopped_by_key()), (None, false));
        assert_eq!(describe(&ladder.handle(Interrupt)), "cancel stop(Ctrl-C)");
        ladder.set_policy(Detach);
        assert_eq!((describe(&ladder.handle(Interrupt)).as_str(), ladder.dashboard_role()), ("leave detach", DashboardRole::Observer));
    }
}
