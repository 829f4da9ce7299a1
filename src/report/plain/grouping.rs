//! Events that several hosts report within a moment are one line.

use std::collections::BTreeSet;
use std::io;

use super::super::groupable_event::{EventTexts, GroupableEvent};
use super::super::line_writer::LineOutput;
use super::super::style::{self, Tone};
use super::{EventGroup, PlainSink};
use crate::event::{Event, EventKind, Level, StepInfo, UnixMillis};
use crate::state::RunState;
use crate::text::translation::with_help;

impl EventGroup {
    /// Exits of ranks that something stopped, apart from those that failed by themselves: known once the exits of their neighbours are.
    fn split_by_cause(self, state: &RunState) -> Vec<EventGroup> {
        let GroupableEvent::RankExited(exit) = &self.event else { return vec![self] };
        let rank_state = |rank: &u32| state.ranks.get(rank);
        let (stopped, failed): (BTreeSet<u32>, BTreeSet<u32>) =
            self.ranks.iter().partition(|rank| rank_state(rank).is_some_and(|rank| rank.was_ended()));
        if stopped.is_empty() {
            return vec![self];
        }
        let part = |event: GroupableEvent, ranks: BTreeSet<u32>| {
            let ended_at = ranks.iter().filter_map(rank_state).map(|rank| rank.ended_at).filter(|ended_at| *ended_at > 0).min();
            EventGroup {
                event,
                hosts: ranks.iter().filter_map(rank_state).map(|rank| rank.host).collect(),
                happened_at: ended_at.unwrap_or(self.happened_at),
                ranks,
            }
        };
        [(GroupableEvent::RankExited(exit.clone()), failed), (GroupableEvent::RankStopped(exit.clone()), stopped)]
            .into_iter()
            .filter(|(_, ranks)| !ranks.is_empty())
            .map(|(event, ranks)| part(event, ranks))
            .collect()
    }
}

impl<O: LineOutput> PlainSink<O> {
    /// Returns its group.
    pub(super) fn queue_event(&mut self, at: UnixMillis, event: GroupableEvent, host: Option<u32>, rank: Option<u32>) -> &mut EventGroup {
        if self.pending_groups.is_empty() {
            self.pending_since = at;
        }
        let index = self.pending_groups.iter().position(|group| group.event == event).unwrap_or_else(|| {
            self.pending_groups.push(EventGroup { event, hosts: BTreeSet::new(), ranks: BTreeSet::new(), happened_at: at });
            self.pending_groups.len() - 1
        });
        let group = &mut self.pending_groups[index];
        group.hosts.extend(host);
        group.ranks.extend(rank);
        group
    }

    pub(super) fn flush_pending(&mut self, state: &RunState) -> io::Result<()> {
        for line in self.log_filter.take_all(state, &self.settings.sanitizer, self.settings.log_style) {
            self.out.write_log_line(&line)?;
        }
        let groups = std::mem::take(&mut self.pending_groups).into_iter();
        let mut groups: Vec<EventGroup> = groups.flat_map(|group| group.split_by_cause(state)).collect();
        // A host's files are read in the order of their names.
        let is_exit = |group: &EventGroup| matches!(group.event, GroupableEvent::RankExited(_) | GroupableEvent::RankStopped(_));
        groups.chunk_by_mut(|a, b| is_exit(a) && is_exit(b)).for_each(|exits| exits.sort_by_key(|group| group.happened_at));
        for group in groups {
            let hosts = style::format_hosts(state, &self.settings.sanitizer, &group.hosts);
            let texts = EventTexts { lang: self.settings.lang, sanitizer: &self.settings.sanitizer };
            let several = group.hosts.len() > 1 && matches!(group.event, GroupableEvent::HostLost { retrying: false, .. });
            let ranks: Vec<u32> = group.ranks.into_iter().collect();
            let shown_hosts = if several { self.settings.lang.count(group.hosts.len(), "host") } else { hosts.clone() };
            let (tone, text, hint) = texts.describe(group.event, &shown_hosts, &ranks);
            self.write_line(tone, &text)?;
            if several {
                self.write_line(Tone::Plain, &format!("  {hosts}"))?;
            }
            if !hint.is_empty() {
                self.write_line(Tone::Plain, &format!("  {}", self.settings.lang.tr_fill("help: {}", &[&hint])))?;
            }
        }
        Ok(())
    }

    pub(super) fn queue_step_failed(&mut self, step: u32, (error, hint): (&str, &str), at: UnixMillis, state: &RunState) {
        if let Some(StepInfo { phase, host, title, .. }) = state.step_tracker.step(step).map(|step| &step.info) {
            let failed = GroupableEvent::StepFailed { phase: *phase, title: title.clone(), error: error.to_owned(), hint: hint.to_owned() };
            self.queue_event(at, failed, Some(*host), None);
        }
    }

    /// Queues events that several hosts may report, to print equal ones once.
    pub(super) fn queue_groupable(&mut self, event: &Event, state: &RunState) {
        let at = event.at;
        match &event.kind {
            EventKind::HostConnecting { host } => {
                self.connecting_hosts.insert(*host);
            }
            EventKind::HostLost { host, error, hint, will_retry } => {
                self.connecting_hosts.remove(host);
                self.lost_hosts.insert(*host);
                let lost = GroupableEvent::HostLost { error: error.clone(), hint: hint.clone(), retrying: *will_retry };
                self.queue_event(at, lost, Some(*host), None);
            }
            EventKind::HostConnected { host, .. } => {
                self.connecting_hosts.remove(host);
                if self.lost_hosts.remove(host) {
                    self.queue_event(at, GroupableEvent::HostReconnected, Some(*host), None);
                }
            }
            EventKind::StepRetrying { step, error } => {
                if let Some(StepInfo { phase, host, .. }) = state.step_tracker.step(*step).map(|step| &step.info) {
                    self.queue_event(at, GroupableEvent::StepRetrying { phase: *phase, error: error.clone() }, Some(*host), None);
                }
            }
            EventKind::RankExited { host, rank, exit, ended_at, .. } if !exit.is_success() => {
                let exited = GroupableEvent::RankExited(exit.to_string());
                let group = self.queue_event(at, exited, Some(*host), Some(*rank));
                // On our clock; 0: unknown.
                group.happened_at = if *ended_at == 0 { group.happened_at } else { group.happened_at.min(*ended_at) };
            }
            EventKind::LauncherExited { host, exit, .. } if !exit.is_success() => {
                self.queue_event(at, GroupableEvent::LauncherExited(exit.to_string()), Some(*host), None);
            }
            EventKind::RanksSignaled { host, signal } => {
                let own = state.ranks.values().filter(|rank| rank.host == *host);
                let exited: Vec<bool> = own.map(|rank| rank.exit.is_some()).collect();
                let ranks = exited.is_empty() || exited.contains(&false);
                self.queue_event(at, GroupableEvent::RanksSignaled { signal: signal.clone(), ranks }, Some(*host), None);
            }
            EventKind::Notice { host, text, warn } => {
                self.queue_event(at, GroupableEvent::Notice { text: text.clone(), warn: *warn }, *host, None);
            }
            EventKind::CheckFinished { check, level, hosts, message, hint } if *level == Level::Warn => {
                let text = with_help(&format!("{check}: {message}"), hint);
                for host in hosts {
                    self.queue_event(at, GroupableEvent::Notice { text: text.clone(), warn: true }, Some(*host), None);
                }
            }
            EventKind::Leftover { host, text, unchecked } => {
                self.queue_event(at, GroupableEvent::Leftover { text: text.clone(), unchecked: *unchecked }, Some(*host), None);
            }
            _ => {}
        }
    }
}
