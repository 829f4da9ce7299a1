//! Events that several hosts may report within a moment, and their lines.

use crate::event::Phase;
use crate::text::sanitize::Sanitizer;
use crate::text::translation::Lang;

use super::style::{self, Tone};

/// What the remedy of an error before it begins with.
const HELP_PREFIX: &str = "help: ";

/// An event that several hosts may report within a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GroupableEvent {
    StepFailed {
        phase: Phase,
        title: String,
        error: String,
        hint: String,
    },
    StepRetrying {
        phase: Phase,
        error: String,
    },
    HostLost {
        error: String,
        hint: String,
        retrying: bool,
    },
    HostReconnected,
    RankExited(String),
    /// The exit of a rank that something stopped.
    RankStopped(String),
    LauncherExited(String),
    /// `ranks`: whether a rank of the host still runs, not the launcher alone.
    RanksSignaled {
        signal: String,
        ranks: bool,
    },
    Notice {
        text: String,
        warn: bool,
    },
    /// `unchecked`: its host did not answer, so it is not known what is there.
    Leftover {
        text: String,
        unchecked: bool,
    },
}

/// What the lines of such events are written with.
pub(super) struct EventTexts<'a> {
    pub(super) lang: Lang,
    pub(super) sanitizer: &'a Sanitizer,
}

impl EventTexts<'_> {
    fn message(&self, text: &str) -> String {
        self.lang.message(&self.sanitizer.sanitize_line(text)).into_owned()
    }

    /// The line of an event and its hint, which may be empty.
    pub(super) fn describe(&self, event: GroupableEvent, hosts: &str, ranks: &[u32]) -> (Tone, String, String) {
        let lang = self.lang;
        let place = || lang.tr_fill("{} on {}", &[&lang.message(&style::format_ranks(ranks)), hosts]);
        let (tone, text) = match event {
            GroupableEvent::StepFailed { phase, title, error, hint } => {
                let failure = style::step_failure(phase, &title, &error, |text| self.message(text));
                let text = format!("{} {hosts} {failure}", lang.tr("FAILED"));
                return (Tone::Bad, text, self.message(&hint));
            }
            GroupableEvent::StepRetrying { phase, error } => {
                (Tone::Warn, lang.tr_fill("{} {}: retrying: {}", &[hosts, &phase.label(), &self.message(&error)]))
            }
            GroupableEvent::HostLost { error, retrying: true, .. } => {
                (Tone::Warn, lang.tr_fill("{}: no connection: {}; retrying", &[hosts, &self.message(&error)]))
            }
            GroupableEvent::HostLost { error, hint, retrying: false } => {
                let text = format!("{} {hosts}{}{}", lang.tr("UNREACHABLE"), lang.colon(), self.message(&error));
                return (Tone::Bad, text, self.message(&hint));
            }
            GroupableEvent::HostReconnected => (Tone::Ok, lang.tr_fill("{}: reconnected", &[hosts])),
            GroupableEvent::RankStopped(exit) => (Tone::Dim, lang.tr_fill("{}: stopped, {}", &[&place(), &lang.message(&exit)])),
            GroupableEvent::RankExited(exit) => (Tone::Bad, format!("{}{}{}", place(), lang.colon(), lang.message(&exit))),
            GroupableEvent::LauncherExited(exit) => (Tone::Bad, lang.tr_fill("{}: the launcher ended: {}", &[hosts, &lang.message(&exit)])),
            GroupableEvent::RanksSignaled { signal, ranks: true } => {
                (Tone::Warn, lang.tr_fill("{} sent to the processes of the run on {}", &[&self.sanitizer.sanitize_line(&signal), hosts]))
            }
            GroupableEvent::RanksSignaled { signal, ranks: false } => {
                (Tone::Warn, lang.tr_fill("{} sent to the launcher on {}", &[&self.sanitizer.sanitize_line(&signal), hosts]))
            }
            // Below the error that it belongs to.
            GroupableEvent::Notice { text, .. } if text.starts_with(HELP_PREFIX) => (Tone::Plain, format!("    {}", self.message(&text))),
            // A detail of the notice before it.
            GroupableEvent::Notice { text, .. } if text.starts_with("  ") => {
                (Tone::Warn, format!("    {}", self.message(text.trim_start())))
            }
            GroupableEvent::Notice { text, warn } => {
                let (tone, prefix) = if warn { (Tone::Warn, lang.tr("warning: ")) } else { (Tone::Plain, "") };
                let location = if hosts.is_empty() { String::new() } else { format!("{hosts}{}", lang.colon()) };
                (tone, format!("{prefix}{location}{}", self.message(&text)))
            }
            GroupableEvent::Leftover { text, unchecked: true } => {
                (Tone::Warn, lang.tr_fill("UNCHECKED {}: {}", &[hosts, &self.message(&text)]))
            }
            GroupableEvent::Leftover { text, unchecked: false } => {
                (Tone::Bad, lang.tr_fill("LEFTOVER on {}: {}", &[hosts, &self.message(&text)]))
            }
        };
        (tone, text, String::new())
    }
}
