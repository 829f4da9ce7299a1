//! What preflight found, as a page for people and as JSON. Equal hosts are one row, the worst comes first, 80 columns are enough.
//!
//! Uses `plan/check` and `words`.

use std::time::Duration;

use unicode_width::UnicodeWidthStr;

use crate::event::Outcome;
use crate::model::level::Level;
use crate::preflight::smoke::CHECK_NAME;
use crate::preflight::{CheckArea, CheckReport, CheckResult, CheckResultGroup, PreflightCheck};

use super::style::{TextStyle, Tone, count_noun, format_duration, truncate_text};
use crate::text::hostlist;
use crate::text::hostlist::fold_names;
use crate::text::sanitize::Sanitizer;
use crate::text::width::wrap_with_indent;

const PAGE_WIDTH: usize = 80;
/// How many sorts of trouble of one check are shown.
const MAX_GROUPS_PER_CHECK: usize = 4;
/// How many rows of hosts are shown.
const MAX_HOST_ROWS: usize = 20;

/// What the page is about.
pub(crate) struct PreflightReportContext<'a> {
    pub name: &'a str,
    /// All hosts, in node-rank order.
    pub hosts: &'a [String],
    /// Hosts that could not be reached: name, why, what to do next.
    pub unreachable: &'a [(String, String, String)],
    pub style: TextStyle,
    /// What must not be shown.
    pub sanitizer: Sanitizer,
    /// How long it took.
    pub elapsed: Duration,
}

/// A cell's words with the number of those who agree on something else.
pub(crate) fn result_text(result: &CheckResult) -> String {
    match result.majority_size {
        0 => result.message.clone(),
        n => format!("{}; {} agree", result.message, count_noun(n, "host")),
    }
}

/// Who it is about and what was found: `7 hosts agree, gpu03 differs: 535.129 instead of 550.54`.
fn group_text(group: &CheckResultGroup, names: &str) -> String {
    let cell = &group.result;
    match (cell.majority_size, group.hosts.len()) {
        (0, _) if cell.message.is_empty() => names.to_owned(),
        (0, _) => format!("{names}: {}", cell.message),
        (agree, n) => {
            let (agrees, differs) = (if agree == 1 { "agrees" } else { "agree" }, if n == 1 { "differs" } else { "differ" });
            format!("{} {agrees}, {names} {differs}: {}", count_noun(agree, "host"), cell.message)
        }
    }
}

fn level_label(level: Level) -> (&'static str, Tone) {
    match level {
        Level::Fail => ("FAIL", Tone::Bad),
        Level::Warn => ("warn", Tone::Warn),
        Level::Pass => ("ok", Tone::Ok),
        Level::Skipped => ("-", Tone::Dim),
    }
}

pub(crate) fn render_text(context: &PreflightReportContext<'_>, reports: &[CheckReport]) -> String {
    let mut lines = vec![header_line(context, reports)];
    lines.extend(render_matrix(context, reports));
    lines.extend(context.unreachable.iter().flat_map(|(host, why, hint)| render_unreachable(context, host, why, hint)));
    let mut told: Vec<(Level, &CheckReport, CheckResultGroup)> = Vec::new();
    for answer in reports {
        // What a smoke measured is what it was run for.
        let tells = |g: &CheckResultGroup| g.result.level > Level::Pass || g.result.level == Level::Pass && answer.check.name == CHECK_NAME;
        let mut groups: Vec<CheckResultGroup> = answer.groups().into_iter().filter(tells).collect();
        if groups.len() > MAX_GROUPS_PER_CHECK + 1 {
            let more = groups.split_off(MAX_GROUPS_PER_CHECK);
            let hosts: Vec<usize> = more.iter().flat_map(|g| g.hosts.iter().copied()).collect();
            let level = more.first().map_or(Level::Warn, |g| g.result.level);
            let what = format!("the like, in {} other words (--json has them)", more.len());
            let cell = CheckResult { level, message: what, hint: String::new(), evidence: Vec::new(), majority_size: 0 };
            groups.push(CheckResultGroup { hosts, result: cell });
        }
        told.extend(groups.into_iter().map(|g| (g.result.level, answer, g)));
    }
    told.sort_by_key(|(level, _, _)| std::cmp::Reverse(*level));
    if !told.is_empty() {
        lines.push(String::new());
    }
    lines.extend(told.iter().flat_map(|(level, answer, group)| render_finding(context, *level, answer.check.name, group)));
    lines.extend(render_passed_and_skipped(context, reports));
    lines.join("\n") + "\n"
}

fn header_line(context: &PreflightReportContext<'_>, reports: &[CheckReport]) -> String {
    let of = |level| reports.iter().filter(|a| a.level() == level).count();
    let mut parts = vec![format!("CHECK  {}  {}", context.sanitizer.sanitize_line(context.name), count_noun(context.hosts.len(), "host"))];
    let mut add = |n: usize, text: String, role| {
        if n > 0 {
            parts.push(context.style.paint(role, &text));
        }
    };
    add(context.unreachable.len(), format!("{} unreachable", context.unreachable.len()), Tone::Bad);
    add(of(Level::Fail), format!("{} failed", of(Level::Fail)), Tone::Bad);
    add(of(Level::Warn), count_noun(of(Level::Warn), "warning"), Tone::Warn);
    add(of(Level::Pass), format!("{} passed", of(Level::Pass)), Tone::Ok);
    add(of(Level::Skipped), format!("{} skipped", of(Level::Skipped)), Tone::Dim);
    parts.push(format_duration(i64::try_from(context.elapsed.as_millis()).unwrap_or(i64::MAX)));
    parts.join("  ")
}

/// A row for each sort of host, a column for each area.
fn render_matrix(context: &PreflightReportContext<'_>, reports: &[CheckReport]) -> Vec<String> {
    let areas: Vec<CheckArea> = CheckArea::ALL.into_iter().filter(|area| reports.iter().any(|a| a.check.area == *area)).collect();
    let mut rows: Vec<(Vec<Option<Level>>, Vec<String>)> = Vec::new();
    for (index, name) in context.hosts.iter().enumerate() {
        let level = |area: &CheckArea| {
            let of = reports.iter().filter(|a| a.check.area == *area).flat_map(|a| &a.results);
            of.filter(|(host, _)| *host == index).map(|(_, cell)| cell.level).max()
        };
        let row: Vec<Option<Level>> = areas.iter().map(level).collect();
        match rows.iter_mut().find(|(levels, _)| *levels == row) {
            Some((_, names)) => names.push(context.sanitizer.sanitize_line(name)),
            None => rows.push((row, vec![context.sanitizer.sanitize_line(name)])),
        }
    }
    rows.sort_by_key(|(levels, _)| (levels.iter().any(Option::is_some), std::cmp::Reverse(levels.iter().max().copied().flatten())));
    let mut lines = vec![String::new()];
    let titles: String = areas.iter().map(|area| format!("{:<9}", area.as_str())).collect();
    lines.push(context.style.paint(Tone::Dim, format!("  {:<22}{titles}", "hosts").trim_end()));
    let more = rows.len().saturating_sub(MAX_HOST_ROWS);
    for (levels, names) in rows.into_iter().take(MAX_HOST_ROWS) {
        let name = truncate_text(&fold_names(&names), 21);
        let pad = " ".repeat(22_usize.saturating_sub(name.width()));
        let cell = |level: &Option<Level>| {
            let (word, role) = level.map_or(("?", Tone::Bad), level_label);
            format!("{}{}", context.style.paint(role, word), " ".repeat(9 - word.len()))
        };
        lines.push(format!("  {name}{pad}{}", levels.iter().map(cell).collect::<String>()).trim_end().to_owned());
    }
    lines.extend((more > 0).then(|| format!("  and {more} more sorts of hosts (--json has all)")));
    lines
}

fn render_unreachable(context: &PreflightReportContext<'_>, host: &str, why: &str, hint: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    lines.extend(wrap_with_indent(&context.sanitizer.sanitize_line(&format!("{host}: {why}")), "AWAY  ", "      ", PAGE_WIDTH));
    if !hint.is_empty() {
        lines.extend(wrap_with_indent(&context.sanitizer.sanitize_line(hint), "      help: ", "            ", PAGE_WIDTH));
    }
    lines
}

fn render_finding(context: &PreflightReportContext<'_>, level: Level, name: &str, group: &CheckResultGroup) -> Vec<String> {
    let names: Vec<String> = group.hosts.iter().filter_map(|h| context.hosts.get(*h)).cloned().collect();
    let (word, role) = level_label(level);
    let text = context.sanitizer.sanitize_line(&group_text(group, &fold_names(&names)));
    let mut lines = wrap_with_indent(&text, &format!("{word:<6}{name}: "), "      ", PAGE_WIDTH);
    if let Some(first) = lines.first_mut() {
        *first = first.replacen(word, &context.style.paint(role, word), 1);
    }
    for line in &group.result.evidence {
        lines.push(
            context.style.paint(Tone::Dim, &format!("      | {}", truncate_text(&context.sanitizer.sanitize_line(line), PAGE_WIDTH - 8))),
        );
    }
    if !group.result.hint.is_empty() {
        lines.extend(wrap_with_indent(&context.sanitizer.sanitize_line(&group.result.hint), "      help: ", "            ", PAGE_WIDTH));
    }
    lines
}

/// What passed and what was not looked at, in few lines.
fn render_passed_and_skipped(context: &PreflightReportContext<'_>, reports: &[CheckReport]) -> Vec<String> {
    let mut lines = vec![String::new()];
    let passed: Vec<&str> =
        reports.iter().filter(|a| a.level() == Level::Pass && a.check.name != CHECK_NAME).map(|a| a.check.name).collect();
    if !passed.is_empty() {
        let text = passed.join(" ");
        let mut found = wrap_with_indent(&text, "ok    ", "      ", PAGE_WIDTH);
        if let Some(first) = found.first_mut() {
            *first = first.replacen("ok", &context.style.paint(Tone::Ok, "ok"), 1);
        }
        lines.extend(found);
    }
    // Why something was not looked at, once for all checks of which it is the same.
    let mut whys: Vec<(String, Vec<String>, Vec<&str>)> = Vec::new();
    for answer in reports {
        for group in answer.groups().into_iter().filter(|g| g.result.level == Level::Skipped && !g.result.message.is_empty()) {
            let names: Vec<String> = group.hosts.iter().filter_map(|h| context.hosts.get(*h)).cloned().collect();
            match whys.iter_mut().find(|(why, hosts, _)| *why == group.result.message && *hosts == names) {
                Some((_, _, checks)) => checks.push(answer.check.name),
                None => whys.push((group.result.message.clone(), names, vec![answer.check.name])),
            }
        }
    }
    for (why, names, checks) in whys {
        let everyone = names.len() + context.unreachable.len() == context.hosts.len();
        let place = if everyone { String::new() } else { format!(" on {}", hostlist::fold_names(&names)) };
        let text = context.sanitizer.sanitize_line(&format!("{}{place}: {why}", checks.join(" ")));
        lines.extend(wrap_with_indent(&text, "skip  ", "      ", PAGE_WIDTH).into_iter().map(|l| context.style.paint(Tone::Dim, &l)));
    }
    lines
}

pub(crate) fn render_json(context: &PreflightReportContext<'_>, reports: &[CheckReport], outcome: &Outcome) -> serde_json::Value {
    let names = |hosts: &[usize]| {
        hosts.iter().filter_map(|h| context.hosts.get(*h)).map(|n| context.sanitizer.sanitize_line(n)).collect::<Vec<_>>()
    };
    let group = |group: &CheckResultGroup| {
        serde_json::json!({
            "hosts": names(&group.hosts),
            "level": group.result.level,
            "message": context.sanitizer.sanitize_line(&group.result.message),
            "agree": group.result.majority_size,
            "hint": context.sanitizer.sanitize_line(&group.result.hint),
            "evidence": group.result.evidence.iter().map(|line| context.sanitizer.sanitize_line(line)).collect::<Vec<_>>(),
        })
    };
    let check = |answer: &CheckReport| {
        serde_json::json!({
            "name": answer.check.name,
            "area": answer.check.area.as_str(),
            "level": answer.level(),
            "results": answer.groups().iter().map(group).collect::<Vec<_>>(),
        })
    };
    let lost = |(host, why, hint): &(String, String, String)| serde_json::json!({ "host": context.sanitizer.sanitize_line(host), "error": context.sanitizer.sanitize_line(why), "hint": context.sanitizer.sanitize_line(hint) });
    serde_json::json!({
        "name": context.name,
        "outcome": outcome,
        "hosts": context.hosts,
        "unreachable": context.unreachable.iter().map(lost).collect::<Vec<_>>(),
        "seconds": context.elapsed.as_secs_f64(),
        "checks": reports.iter().map(check).collect::<Vec<_>>(),
    })
}

/// Every check with what it looks at.
pub(crate) fn list_checks(checks: &[PreflightCheck]) -> String {
    let mut lines = Vec::new();
    for area in CheckArea::ALL {
        lines.push(area.as_str().to_owned());
        for check in checks.iter().filter(|check| check.area == area) {
            lines.extend(wrap_with_indent(check.description, &format!("  {:<18}", check.name), &" ".repeat(20), PAGE_WIDTH));
        }
    }
    lines.join("\n") + "\n"
}
