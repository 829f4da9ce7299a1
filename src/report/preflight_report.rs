//! The preflight report as text and as JSON. Hosts with equal results share a row; failures come first.

use std::time::Duration;

use unicode_width::UnicodeWidthStr;

use crate::event::Outcome;
use crate::model::level::Level;
use crate::preflight::smoke;
use crate::preflight::{CheckArea, CheckReport, CheckResult, CheckResultGroup, PreflightCheck};

use super::style::{TextStyle, Tone, format_duration, level_counts, page_width, truncate_text};
use crate::text::hostlist;
use crate::text::hostlist::fold_names;
use crate::text::plural::count_noun;
use crate::text::sanitize::Sanitizer;
use crate::text::translation::Lang;
use crate::text::width::{pad_end, wrap_message, wrap_with_indent};

/// The maximum number of result groups that are shown for one check.
const MAX_GROUPS_PER_CHECK: usize = 4;
/// The maximum number of rows in the host table.
const MAX_HOST_ROWS: usize = 20;

pub(crate) struct PreflightReportContext<'a> {
    pub name: &'a str,
    /// All hosts, in node-rank order.
    pub hosts: &'a [String],
    /// Unreachable hosts: name, error, hint.
    pub unreachable: &'a [(String, String, String)],
    pub style: TextStyle,
    pub sanitizer: Sanitizer,
    pub elapsed: Duration,
    pub lang: Lang,
    /// The terminal's columns; `None` for a file or a pipe.
    pub columns: Option<u16>,
}

impl PreflightReportContext<'_> {
    fn width(&self) -> usize {
        page_width(self.columns)
    }

    /// A message of a check, sanitized.
    fn message(&self, text: &str) -> String {
        self.lang.message(&self.sanitizer.sanitize_line(text)).into_owned()
    }

    fn host_names(&self, hosts: &[usize]) -> Vec<String> {
        hosts.iter().filter_map(|host| self.hosts.get(*host)).cloned().collect()
    }
}

/// A result's message, with the size of the majority that it differs from.
pub(crate) fn result_text(result: &CheckResult) -> String {
    match result.majority_size {
        0 => result.message.clone(),
        1 => format!("{}; no two hosts agree", result.message),
        n => format!("{}; {} agree", result.message, count_noun(n, "host")),
    }
}

/// `gpu03: 900 MiB free` or `7 hosts agree, gpu03 differs: 535.129 instead of 550.54`.
fn group_text(context: &PreflightReportContext<'_>, group: &CheckResultGroup, names: &str) -> String {
    let (result, lang) = (&group.result, context.lang);
    let (message, agree) = (context.message(&result.message), lang.count(result.majority_size, "host"));
    match (result.majority_size, group.hosts.len()) {
        (0, _) if result.message.is_empty() => names.to_owned(),
        (0, _) => format!("{names}{}{message}", lang.colon()),
        // No two hosts are equal: none of them is the odd one.
        (1, 1) => lang.tr_fill("{} differs from another host: {}", &[names, &message]),
        (1, _) => lang.tr_fill("{} differ from another host: {}", &[names, &message]),
        (_, 1) => lang.tr_fill("{} agree, {} differs: {}", &[&agree, names, &message]),
        (_, _) => lang.tr_fill("{} agree, {} differ: {}", &[&agree, names, &message]),
    }
}

fn level_label(lang: Lang, level: Level) -> (&'static str, Tone) {
    match level {
        Level::Fail => (lang.tr("FAIL"), Tone::Bad),
        Level::Warn => (lang.tr("warn"), Tone::Warn),
        Level::Pass => (lang.tr("ok"), Tone::Ok),
        Level::Skipped => ("-", Tone::Dim),
    }
}

pub(crate) fn render_text(context: &PreflightReportContext<'_>, reports: &[CheckReport]) -> String {
    let mut lines = vec![header_line(context, reports)];
    lines.extend(render_matrix(context, reports));
    lines.extend(context.unreachable.iter().flat_map(|(host, error, hint)| render_unreachable(context, host, error, hint)));
    let mut findings: Vec<(Level, &CheckReport, CheckResultGroup)> = Vec::new();
    for report in reports {
        // The smoke test's measurements are shown even if it passed.
        let is_smoke = report.check.name == smoke::CHECK_NAME;
        let is_shown = |g: &CheckResultGroup| g.result.level > Level::Pass || g.result.level == Level::Pass && is_smoke;
        let mut groups: Vec<CheckResultGroup> = report.groups().into_iter().filter(is_shown).collect();
        if groups.len() > MAX_GROUPS_PER_CHECK + 1 {
            let more = groups.split_off(MAX_GROUPS_PER_CHECK);
            let hosts: Vec<usize> = more.iter().flat_map(|g| g.hosts.iter().copied()).collect();
            let level = more.first().map_or(Level::Warn, |g| g.result.level);
            let message = context.lang.tr_fill("{} more results of this check, see --json", &[&more.len().to_string()]);
            let result = CheckResult { level, message, hint: String::new(), evidence: Vec::new(), majority_size: 0 };
            groups.push(CheckResultGroup { hosts, result });
        }
        findings.extend(groups.into_iter().map(|g| (g.result.level, report, g)));
    }
    findings.sort_by_key(|(level, _, _)| std::cmp::Reverse(*level));
    if !findings.is_empty() {
        lines.push(String::new());
    }
    lines.extend(findings.iter().flat_map(|(level, report, group)| render_finding(context, *level, &report.check, group)));
    lines.extend(render_passed_and_skipped(context, reports));
    lines.join("\n") + "\n"
}

fn header_line(context: &PreflightReportContext<'_>, reports: &[CheckReport]) -> String {
    let lang = context.lang;
    let hosts = lang.count(context.hosts.len(), "host");
    let mut texts = vec![format!("{}  {}  {hosts}", lang.tr("CHECK"), context.sanitizer.sanitize_line(context.name))];
    let lost = context.unreachable.len();
    texts.extend((lost > 0).then(|| context.style.paint(Tone::Bad, &lang.tr_fill("{} unreachable", &[&lost.to_string()]))));
    texts.extend(level_counts(lang, context.style, reports.iter().map(CheckReport::level)));
    texts.push(format_duration(i64::try_from(context.elapsed.as_millis()).unwrap_or(i64::MAX)));
    texts.join("  ")
}

/// One row per group of hosts with equal levels, one column per area.
fn render_matrix(context: &PreflightReportContext<'_>, reports: &[CheckReport]) -> Vec<String> {
    let areas: Vec<CheckArea> = CheckArea::ALL.into_iter().filter(|area| reports.iter().any(|a| a.check.area == *area)).collect();
    let mut rows: Vec<(Vec<Option<Level>>, Vec<String>)> = Vec::new();
    for (index, name) in context.hosts.iter().enumerate() {
        let level = |area: &CheckArea| {
            let results = reports.iter().filter(|report| report.check.area == *area).flat_map(|report| &report.results);
            results.filter(|(host, _)| *host == index).map(|(_, result)| result.level).max()
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
    lines.push(context.style.paint(Tone::Dim, format!("  {}{titles}", pad_end(context.lang.tr("hosts"), 22)).trim_end()));
    let more = rows.len().saturating_sub(MAX_HOST_ROWS);
    for (levels, names) in rows.into_iter().take(MAX_HOST_ROWS) {
        let name = pad_end(&truncate_text(&fold_names(&names), 21), 22);
        let cell = |level: &Option<Level>| {
            let (label, tone) = level.map_or(("?", Tone::Bad), |level| level_label(context.lang, level));
            format!("{}{}", context.style.paint(tone, label), " ".repeat(9_usize.saturating_sub(label.width())))
        };
        lines.push(format!("  {name}{}", levels.iter().map(cell).collect::<String>()).trim_end().to_owned());
    }
    lines.extend(
        (more > 0).then(|| format!("  {}", context.lang.tr_fill("… and {} more groups of hosts, see --json", &[&more.to_string()]))),
    );
    lines
}

fn render_unreachable(context: &PreflightReportContext<'_>, host: &str, error: &str, hint: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    let text = [&context.sanitizer.sanitize_line(host), context.lang.colon(), &context.message(error)].concat();
    lines.extend(wrap_message(&text, &format!("{} ", context.lang.tr("UNREACHABLE")), "      ", context.width()));
    lines.extend(render_help(context, hint));
    lines
}

/// What to do about a finding; nothing where there is no advice.
fn render_help(context: &PreflightReportContext<'_>, hint: &str) -> Vec<String> {
    let label = format!("      {}", context.lang.tr("help: "));
    let indent = " ".repeat(label.width());
    if hint.is_empty() { Vec::new() } else { wrap_message(&context.message(hint), &label, &indent, context.width()) }
}

fn render_finding(context: &PreflightReportContext<'_>, level: Level, check: &PreflightCheck, group: &CheckResultGroup) -> Vec<String> {
    let name = check.name;
    let names = context.host_names(&group.hosts);
    let (label, tone) = level_label(context.lang, level);
    let text = context.sanitizer.sanitize_line(&group_text(context, group, &fold_names(&names)));
    let mut lines = wrap_message(&text, &format!("{}{name}{}", pad_end(label, 6), context.lang.colon()), "      ", context.width());
    if let Some(first) = lines.first_mut() {
        *first = first.replacen(label, &context.style.paint(tone, label), 1);
    }
    for line in &group.result.evidence {
        lines.push(context.style.paint(Tone::Dim, &format!("      | {}", truncate_text(&context.message(line), context.width() - 8))));
    }
    lines.extend(render_help(context, &group.result.hint));
    if level == Level::Fail && check.is_left_to_full() {
        lines.extend(wrap_with_indent(
            context.lang.tr("`up` does this check with --preflight full only"),
            "      ",
            "      ",
            context.width(),
        ));
    }
    lines
}

fn render_passed_and_skipped(context: &PreflightReportContext<'_>, reports: &[CheckReport]) -> Vec<String> {
    let mut lines = vec![String::new()];
    let passed: Vec<&str> =
        reports.iter().filter(|a| a.level() == Level::Pass && a.check.name != smoke::CHECK_NAME).map(|a| a.check.name).collect();
    if !passed.is_empty() {
        let text = passed.join(" ");
        let label = context.lang.tr("ok");
        let mut ok_lines = wrap_with_indent(&text, &pad_end(label, 6), "      ", context.width());
        if let Some(first) = ok_lines.first_mut() {
            *first = first.replacen(label, &context.style.paint(Tone::Ok, label), 1);
        }
        lines.extend(ok_lines);
    }
    // Checks that were skipped on the same hosts for the same reason share a line.
    let mut skipped: Vec<(String, Vec<String>, Vec<&str>)> = Vec::new();
    for report in reports {
        for group in report.groups().into_iter().filter(|g| g.result.level == Level::Skipped && !g.result.message.is_empty()) {
            let names = context.host_names(&group.hosts);
            match skipped.iter_mut().find(|(reason, hosts, _)| *reason == group.result.message && *hosts == names) {
                Some((_, _, checks)) => checks.push(report.check.name),
                None => skipped.push((group.result.message.clone(), names, vec![report.check.name])),
            }
        }
    }
    for (reason, names, checks) in skipped {
        let on_all_hosts = names.len() + context.unreachable.len() == context.hosts.len();
        let lang = context.lang;
        let location = if on_all_hosts { String::new() } else { lang.tr_fill(" on {}", &[&hostlist::fold_names(&names)]) };
        let text = format!("{}{location}{}{}", checks.join(", "), lang.colon(), context.message(&reason));
        lines.extend(
            wrap_with_indent(&text, &pad_end(lang.tr("skip"), 6), "      ", context.width())
                .into_iter()
                .map(|l| context.style.paint(Tone::Dim, &l)),
        );
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
    let check = |report: &CheckReport| {
        serde_json::json!({
            "name": report.check.name,
            "area": report.check.area.as_str(),
            "level": report.level(),
            "results": report.groups().iter().map(group).collect::<Vec<_>>(),
        })
    };
    let unreachable = |(host, error, hint): &(String, String, String)| serde_json::json!({ "host": context.sanitizer.sanitize_line(host), "error": context.sanitizer.sanitize_line(error), "hint": context.sanitizer.sanitize_line(hint) });
    serde_json::json!({
        "name": context.name,
        "outcome": outcome,
        "hosts": context.hosts,
        "unreachable": context.unreachable.iter().map(unreachable).collect::<Vec<_>>(),
        "seconds": context.elapsed.as_secs_f64(),
        "checks": reports.iter().map(check).collect::<Vec<_>>(),
    })
}

/// `check --list`: every check with its description, by area.
pub(crate) fn list_checks(checks: &[PreflightCheck], lang: Lang, columns: Option<u16>) -> String {
    let mut lines = Vec::new();
    for area in CheckArea::ALL {
        lines.push(area.as_str().to_owned());
        for check in checks.iter().filter(|check| check.area == area) {
            lines.extend(wrap_with_indent(
                &lang.message(check.description),
                &format!("  {:<18}", check.name),
                &" ".repeat(20),
                page_width(columns),
            ));
        }
    }
    lines.join("\n") + "\n"
}
