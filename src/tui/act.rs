//! What changes something on hosts: asked for by a key, and mostly asked back.
//!
//! Uses the app and its dialogs.

use crate::event::LogFile;

use super::app::{App, Overlay, Screen};
use super::dialog::Dialog;
use super::feed::Ask;
use super::keymap::Cmd;
use super::view::{events, gpus, logs, overview, problems, ranks};

impl App {
    /// Asks before anything is changed, or says why it cannot be.
    pub(super) fn act(&mut self, cmd: Cmd) {
        let offer = self.offer.clone();
        let dialog = match cmd {
            _ if self.readonly => return,
            Cmd::Shell => return self.enter(),
            Cmd::Start => match &offer.start {
                Some(what) => Dialog::start(&self.clean(&self.state.info.name), what),
                None => return self.say("there is no plan that waits for its start"),
            },
            Cmd::TearDown if offer.act || offer.clear => Dialog::tear_down(self),
            Cmd::Halt if offer.act && self.state.stopping.is_none() => Dialog::stop(self),
            Cmd::Kill if offer.act => Dialog::kill(self),
            Cmd::Restart if offer.act && offer.again && self.state.stopping.is_none() => Dialog::restart(self),
            Cmd::Restart if offer.act && self.state.stopping.is_none() => {
                return self.say("what was attached to cannot be launched again from here: use `tui` or `up`");
            }
            _ if offer.act => return self.say("the run is being stopped already"),
            _ => return self.say("no run is followed"),
        };
        self.overlay = Some(Overlay::Dialog(dialog));
    }

    /// A shell where what is under the cursor runs.
    fn enter(&mut self) {
        match self.under() {
            Some((host, rank)) => self.asks.push(Ask::Shell(host, rank)),
            None => self.say("there is no host under the cursor"),
        }
    }

    /// The host under the cursor, and the rank where it is one.
    fn under(&self) -> Option<(u32, Option<u32>)> {
        let own = |host| Some((host, None));
        let of = |(host, file): (u32, LogFile)| match file {
            LogFile::Rank { rank, .. } => (host, Some(rank)),
            LogFile::Node => (host, None),
        };
        match self.screen {
            Screen::Overview => overview::under(self).and_then(own),
            Screen::Host => own(self.host.host).filter(|(host, _)| self.state.hosts.len() > *host as usize),
            Screen::Ranks => ranks::under(self).map(|(host, rank)| (host, Some(rank))),
            Screen::Logs => logs::under(self).map(of),
            Screen::Gpus => own(gpus::under(self)),
            Screen::Problems => problems::under(self),
            Screen::Events => events::under(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenes;
    use super::super::tests::draw;
    use super::*;

    /// From every line of the lists of what happened and of what is wrong that is about a host, one gets there.
    #[test]
    fn a_shell_opens_where_the_line_under_the_cursor_is_about() {
        for screen in [Screen::Events, Screen::Problems] {
            let mut app = scenes::bad_day().app;
            app.screen = screen;
            draw(&mut app, 120, 40);
            app.update(Cmd::Top);
            let (mut hosts, mut ranks) = (0, 0);
            for line in 0..40 {
                draw(&mut app, 120, 40);
                let about = match screen {
                    Screen::Events => app.timeline.items().get(line).map(|item| item.hosts.first().copied()),
                    _ => problems::problems(&app).get(line).map(|problem| problem.hosts.first().copied()),
                };
                let Some(about) = about else { break };
                app.update(Cmd::Shell);
                match (app.asks.pop(), about) {
                    (Some(Ask::Shell(host, rank)), Some(about)) => {
                        assert_eq!(host, about, "{screen:?} {line}");
                        hosts += 1;
                        ranks += usize::from(rank.is_some());
                    }
                    (None, None) => {}
                    (ask, about) => panic!("{screen:?} {line}: {ask:?} for {about:?}"),
                }
                app.update(Cmd::Down);
            }
            assert!(hosts > 2 && ranks > 0, "{screen:?}: {hosts} hosts, {ranks} ranks");
        }
    }
}
