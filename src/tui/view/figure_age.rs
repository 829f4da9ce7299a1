//! Whether the figures of a host are current.

use crate::state::HostState;
use crate::tui::model::Model;

use super::formatting;

/// The GPUs of a host without ranks are no longer current after this time, in milliseconds.
const ENDED_STALE_MS: i64 = 6_000;

/// Whether the figures of a host are no longer current: too old, or those of a host that is lost.
pub(crate) fn has_old_figures(model: &Model, at: u32) -> bool {
    let Some(host) = model.state.hosts.get(at as usize) else { return false };
    let standing = model.host_statuses.get(at as usize);
    // The values of an ended run stay current only until its hosts are left.
    let ended = standing.is_some_and(|standing| standing.ranks.total > 0 && standing.ranks.running == 0);
    let is_aged = ended && host.gpus_at > 0 && model.now - host.gpus_at > ENDED_STALE_MS;
    model.is_stale(host.gpus_at) || host.gpus_error.is_some() || host.is_lost() || is_aged
}

/// Whether nothing is known of the GPUs of a host now: their values are old, or its connection is lost, so that no new ones come.
pub(super) fn has_lost_figures(model: &Model, host: &HostState) -> bool {
    model.is_stale(host.gpus_at) || host.is_lost() && model.state.outcome.is_none()
}

/// As [`has_lost_figures`], also where nvidia-smi does not answer.
pub(super) fn has_stale_gpus(model: &Model, host: &HostState) -> bool {
    has_lost_figures(model, host) || host.gpus_error.is_some()
}

/// Whether the run has ended and the figures of a host are older than the limit: they are what was, not what is.
pub(super) fn is_past(model: &Model, host: &HostState) -> bool {
    model.state.outcome.is_some() && host.gpus_at > 0 && model.now - host.gpus_at > ENDED_STALE_MS
}

/// `values 42s old` where the run has ended and all figures are of the past.
pub(super) fn past_age_text(model: &Model) -> Option<String> {
    let newest = model.state.hosts.iter().filter(|host| !host.gpus.is_empty()).max_by_key(|host| host.gpus_at)?;
    is_past(model, newest).then(|| model.lang.tr_fill("values {} old", &[&formatting::format_age(newest.gpus_at, model.now)]))
}
