//! What changes something on hosts: asked for by a key, and mostly asked back.
//!
//! Uses the app and its dialogs.

use crate::event::LogFile;

use super::app::{App, Overlay, Screen};
use super::dialog::Dialog;
use super::feed::UserAction;
use super::keymap::UiCommand;
use super::view::{events, gpus, logs, overview, problems, ranks};

impl App {
    /// Asks before anything is changed, or says why it cannot be.
    pub(super) fn confirm_action(&mut self, cmd: UiCommand) {
        let offer = self.model.capabilities.clone();
        let dialog = match cmd {
            _ if self.model.readonly => return,
            UiCommand::Shell => return self.request_shell(),
            UiCommand::Start => match &offer.start_summary {
                Some(what) => Dialog::confirm_start(&self.model.sanitize(&self.model.state.info.name), what),
                None => return self.show_toast("there is no plan that waits for its start"),
            },
            UiCommand::TearDown if offer.can_control || offer.can_tear_down => Dialog::confirm_teardown(&self.model),
            UiCommand::Halt if offer.can_control && self.model.state.stopping_since.is_none() => Dialog::confirm_stop(&self.model),
            UiCommand::Kill if offer.can_control => Dialog::confirm_kill(&self.model),
            UiCommand::Restart if offer.can_control && offer.can_restart && self.model.state.stopping_since.is_none() => {
                Dialog::confirm_restart(&self.model)
            }
            UiCommand::Restart if offer.can_control && self.model.state.stopping_since.is_none() => {
                return self.show_toast("what was attached to cannot be launched again from here: use `tui` or `up`");
            }
            _ if offer.can_control => return self.show_toast("the run is being stopped already"),
            _ => return self.show_toast("no run is followed"),
        };
        self.overlay = Some(Overlay::Dialog(dialog));
    }

    /// A shell where what is under the cursor runs.
    fn request_shell(&mut self) {
        match self.target_at_cursor() {
            Some((host, rank)) => self.pending_actions.push(UserAction::OpenShell(host, rank)),
            None => self.show_toast("there is no host under the cursor"),
        }
    }

    /// The host under the cursor, and the rank where it is one.
    fn target_at_cursor(&self) -> Option<(u32, Option<u32>)> {
        let own = |host| Some((host, None));
        let of = |(host, file): (u32, LogFile)| match file {
            LogFile::Rank { rank, .. } => (host, Some(rank)),
            LogFile::Launcher => (host, None),
        };
        match self.screen {
            Screen::Overview => overview::host_at_cursor(self).and_then(own),
            Screen::Host => own(self.host_pane.host).filter(|(host, _)| self.model.state.hosts.len() > *host as usize),
            Screen::Ranks => ranks::rank_at_cursor(self).map(|(host, rank)| (host, Some(rank))),
            Screen::Logs => logs::log_at_cursor(self).map(of),
            Screen::Gpus => own(gpus::host_at_cursor(self)),
            Screen::Problems => problems::target_at_cursor(self),
            Screen::Events => events::target_at_cursor(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::super::tests::draw;
    use super::*;

    /// From every line of the lists of what happened and of what is wrong that is about a host, one gets there.
    #[test]
    fn shell_opens_on_selected_host() {
        for screen in [Screen::Events, Screen::Problems] {
            let mut app = fixtures::bad_day().app;
            app.screen = screen;
            draw(&mut app, 120, 40);
            app.update(UiCommand::Top);
            let (mut hosts, mut ranks) = (0, 0);
            for line in 0..40 {
                draw(&mut app, 120, 40);
                let about = match screen {
                    Screen::Events => app.model.timeline.items().get(line).map(|item| item.hosts.first().copied()),
                    _ => problems::collect_problems(&app).get(line).map(|problem| problem.hosts.first().copied()),
                };
                let Some(about) = about else { break };
                app.update(UiCommand::Shell);
                match (app.pending_actions.pop(), about) {
                    (Some(UserAction::OpenShell(host, rank)), Some(about)) => {
                        assert_eq!(host, about, "{screen:?} {line}");
                        hosts += 1;
                        ranks += usize::from(rank.is_some());
                    }
                    (None, None) => {}
                    (ask, about) => panic!("{screen:?} {line}: {ask:?} for {about:?}"),
                }
                app.update(UiCommand::Down);
            }
            assert!(hosts > 2 && ranks > 0, "{screen:?}: {hosts} hosts, {ranks} ranks");
        }
    }
}
