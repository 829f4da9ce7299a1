//! Carries out what panes and overlays request: switch screens, export text, and change something on hosts after a confirmation.
//!
//! A toast names the way a text was exported, because a terminal may ignore OSC 52 without an error.

use super::app::App;
use super::command_palette::PaletteOutcome;
use super::dialog::{Dialog, DialogChoice};
use super::feed::UserAction;
use super::keymap::UiCommand;
use super::pane_action::{ExportedText, PaneAction};
use super::text_input::InputOutcome;
use super::ui::{Overlay, Screen};
use super::view::{gpus, host, logs, overview, ranks};

/// Maximum clipboard text in bytes; longer text goes to a file.
const MAX_CLIPBOARD_BYTES: usize = 64 << 10;

impl App {
    /// Opens a confirmation dialog for a mutating command, or shows why the command is not available.
    pub(super) fn confirm_action(&mut self, cmd: UiCommand) {
        let capabilities = self.model.capabilities.clone();
        let dialog = match cmd {
            _ if self.model.readonly => return,
            UiCommand::Shell => return self.request_shell(),
            UiCommand::Start => match &capabilities.start_summary {
                Some(what) => Dialog::confirm_start(&self.model, what),
                None => return self.show_toast("no launch is waiting to be started"),
            },
            UiCommand::TearDown if capabilities.can_control || capabilities.can_tear_down => Dialog::confirm_teardown(&self.model),
            UiCommand::Stop if capabilities.can_control && self.model.state.stopping_since.is_none() => Dialog::confirm_stop(&self.model),
            UiCommand::Kill if capabilities.can_control => Dialog::confirm_kill(&self.model),
            UiCommand::Restart if capabilities.can_control && capabilities.can_restart && self.model.state.stopping_since.is_none() => {
                Dialog::confirm_restart(&self.model)
            }
            UiCommand::Restart if capabilities.can_control && self.model.state.stopping_since.is_none() => {
                return self.show_toast("an attached dashboard cannot restart the run: use `tui` or `up`");
            }
            _ if capabilities.can_control => return self.show_toast("the run is already stopping"),
            _ => return self.show_toast("no run to act on"),
        };
        self.ui.overlay = Some(Overlay::Dialog(dialog));
    }

    /// Opens a shell for the host or rank under the cursor.
    fn request_shell(&mut self) {
        match self.ui.target_at_cursor(&self.model) {
            Some((host, rank)) => self.pending_actions.push(UserAction::OpenShell(host, rank)),
            None => self.show_toast("no host under the cursor"),
        }
    }

    /// Carries out a pane's request.
    pub(super) fn perform(&mut self, action: Option<PaneAction>) {
        match action {
            None => {}
            Some(PaneAction::ShowHost(host)) => {
                self.ui.host = host::HostPane::new(host);
                self.ui.screen = Screen::Host;
            }
            Some(PaneAction::ShowLog(log)) => {
                self.ui.logs.show_log(log);
                self.ui.screen = Screen::Logs;
            }
            Some(PaneAction::ShowLogAt(log, when)) => {
                self.ui.logs.show_log(log);
                self.ui.screen = Screen::Logs;
                if let Some(offset) = self.model.log_times.offset_at(log, when) {
                    let failed = logs::go_to_offset(&mut self.ui.logs, &self.model, offset);
                    self.perform(failed);
                }
            }
            Some(PaneAction::AddMark(log, text)) => self.model.timeline.add_mark(self.model.now, &text, log),
            Some(PaneAction::CopyText(text)) => self.copy_text(text),
            Some(PaneAction::SaveText(text)) => {
                let message = self.save_text(&text).map_or_else(|why| why, |path| format!("{} saved to {path}", text.label));
                self.show_toast(&message);
            }
            Some(PaneAction::ShowToast(text)) => self.show_toast(&text),
            Some(PaneAction::Request(action)) => self.pending_actions.push(action),
        }
    }

    fn copy_text(&mut self, export: ExportedText) {
        let what = &export.label;
        if export.text.len() > MAX_CLIPBOARD_BYTES {
            let saved = self.save_text(&export);
            return self.show_toast(&saved.map_or_else(|why| why, |path| format!("{what}: too large for the clipboard, saved to {path}")));
        }
        let message = match self.clipboard.as_ref().and_then(|clipboard| clipboard.copy_to_multiplexer(&export.text)) {
            Some(Ok(())) => format!("{what} copied to tmux, which passes it to the clipboard if allowed"),
            Some(Err(error)) => {
                self.pending_clipboard = Some(export.text);
                format!("tmux refused it ({error}): {what} sent to the terminal (OSC 52), which may ignore it")
            }
            None => {
                self.pending_clipboard = Some(export.text);
                let save = self.model.key(UiCommand::Save);
                format!("{what} sent to the terminal (OSC 52), which may ignore it; {save} saves to a file")
            }
        };
        self.show_toast(&message);
    }

    /// Writes a file and returns its path, or the reason why it failed.
    fn save_text(&self, export: &ExportedText) -> Result<String, String> {
        let Some(clipboard) = &self.clipboard else { return Err("this dashboard cannot save files".to_owned()) };
        clipboard.save_to_file(&export.name, &export.text).map_err(|error| format!("not saved: {error}"))
    }

    /// Handles a key for the open dialog or prompt; `false` if none is open.
    pub(crate) fn handle_overlay_key(&mut self, key: &str) -> bool {
        if let Some(Overlay::Find(_) | Overlay::Filter(_)) = &self.ui.overlay {
            self.handle_prompt_key(key);
            return true;
        }
        let contexts = self.ui.key_contexts(&self.model);
        if let Some(Overlay::Palette(palette)) = &mut self.ui.overlay {
            match palette.handle_key(key, &self.model.bindings, &contexts) {
                PaletteOutcome::StillOpen => {}
                PaletteOutcome::Cancelled => self.ui.overlay = None,
                PaletteOutcome::Selected(cmd) => {
                    self.ui.overlay = None;
                    self.update(cmd);
                }
            }
            return true;
        }
        let Some(Overlay::Dialog(dialog)) = &mut self.ui.overlay else { return false };
        if let Some(choice) = dialog.handle_key(key, self.model.now) {
            self.ui.overlay = None;
            self.answer_dialog(choice);
        }
        true
    }

    /// Handles a key for the open text prompt.
    fn handle_prompt_key(&mut self, key: &str) {
        let filters = matches!(self.ui.overlay, Some(Overlay::Filter(_)));
        let Some(Overlay::Find(prompt) | Overlay::Filter(prompt)) = &mut self.ui.overlay else { return };
        match prompt.handle_key(key) {
            InputOutcome::Editing => {}
            InputOutcome::Cancelled => self.ui.overlay = None,
            InputOutcome::Submitted => {
                let text = std::mem::take(&mut prompt.text);
                self.ui.overlay = None;
                let action = match self.ui.screen {
                    _ if filters => logs::set_filter(&mut self.ui.logs, &self.model, &text),
                    Screen::Gpus => gpus::set_filter(&mut self.ui.gpus, &text),
                    Screen::Ranks => ranks::set_filter(&mut self.ui.ranks, &text),
                    Screen::Overview => overview::set_filter(&mut self.ui.overview, &self.model, &text),
                    _ => logs::set_search(&mut self.ui.logs, &self.model, &text),
                };
                self.perform(action);
            }
        }
    }

    fn answer_dialog(&mut self, choice: DialogChoice) {
        match choice {
            // To wait is an answer too.
            DialogChoice::Cancel if self.model.is_tearing_down() => {}
            DialogChoice::Cancel => self.show_toast("nothing was changed"),
            DialogChoice::Do(action) => {
                match action {
                    UserAction::Detach if !self.model.capabilities.can_control => {
                        self.show_toast("leaving when all ranks have started; the run continues");
                    }
                    UserAction::TearDown => self.ui.screen = Screen::Overview,
                    _ => {}
                }
                self.pending_actions.push(action);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::super::tests::draw;
    use super::super::view::run_problems;
    use super::*;

    /// A shell opens for every item of the Events and Problems screens that concerns a host.
    #[test]
    fn shell_opens_on_selected_host() {
        for screen in [Screen::Events, Screen::Problems] {
            let mut app = fixtures::bad_day().app;
            app.ui.screen = screen;
            draw(&mut app, 120, 40);
            app.update(UiCommand::Top);
            let (mut hosts, mut ranks) = (0, 0);
            for line in 0..40 {
                draw(&mut app, 120, 40);
                let about = match screen {
                    Screen::Events => app.model.timeline.items().get(line).map(|item| item.hosts.first().copied()),
                    _ => run_problems::collect_problems(&app.model).get(line).map(|problem| problem.hosts.first().copied()),
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
                    (action, about) => panic!("{screen:?} {line}: {action:?} for {about:?}"),
                }
                app.update(UiCommand::Down);
            }
            assert!(hosts > 2 && ranks > 0, "{screen:?}: {hosts} hosts, {ranks} ranks");
        }
    }
}
