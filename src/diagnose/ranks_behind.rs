//! The ranks that did not reach the line at which the others wait.

use std::collections::BTreeMap;

use crate::state::RankState;

/// How many lines of a rank are compared.
const COMPARED_LINES: usize = 50;

/// A few ranks that have not written what most have written last, and did not write later; and that line.
pub(super) fn find_ranks_behind<'a>(alive: &[&'a RankState]) -> Option<(Vec<&'a RankState>, String)> {
    let mut last: BTreeMap<String, (String, Vec<&RankState>)> = BTreeMap::new();
    for rank in alive {
        if let Some(line) = rank.recent_lines.last_line().filter(|line| !line.trim().is_empty()) {
            last.entry(mask_numbers(&line)).or_insert_with(|| (line, Vec::new())).1.push(rank);
        }
    }
    let (common, (example, most)) =
        last.into_iter().max_by_key(|(_, (_, ranks))| ranks.len()).filter(|(_, (_, ranks))| ranks.len() * 2 > alive.len())?;
    let last_output_at = most.iter().map(|rank| rank.last_output_at).max().unwrap_or(0);
    let lines = || most.iter().map(|rank| rank.recent_lines.total_lines);
    let (fewest, most_lines) = (lines().min().unwrap_or(0), lines().max().unwrap_or(0));
    // A rank that wrote later is ahead, unless it wrote fewer lines than any of them: then it only reached the same point later.
    let after = |rank: &RankState| {
        rank.recent_lines.total_lines > most_lines || rank.last_output_at > last_output_at && rank.recent_lines.total_lines >= fewest
    };
    let missed =
        |rank: &&&RankState| !after(rank) && rank.recent_lines.last_lines(COMPARED_LINES).iter().all(|line| mask_numbers(line) != common);
    let behind: Vec<&RankState> = alive.iter().filter(missed).copied().collect();
    // All others are expected to have come: else it is no queue at one place.
    (!behind.is_empty() && behind.len() * 2 < alive.len()).then_some((behind, example))
}

/// A line without its numbers: ranks write the same with their own.
fn mask_numbers(line: &str) -> String {
    let mut out = String::new();
    for c in line.trim().chars() {
        match c.is_ascii_digit() {
            true if out.ends_with('#') => {}
            true => out.push('#'),
            false => out.push(c),
        }
    }
    out
}
