//! What preflight found, as a page for people and as JSON. Equal hosts are one row, the worst comes first, 80 columns are enough.
//!
//! Uses `plan/check` and `words`.

use std::time::Duration;

use unicode_width::UnicodeWidthStr;

use crate::event::Outcome;
use crate::plan::check::smoke::NAME;
use crate::plan::check::{Answer, Area, Cell, Check, Group};
use crate::plan::words::Level;

use super::fold::{self, fold};
use super::sanitize::Cleaner;
use super::words::{Role, Style, count, cut, span};

/// Columns.
const WIDTH: usize = 80;
/// How many sorts of trouble of one check are shown.
const SORTS: usize = 4;
/// How many rows of hosts are shown.
const ROWS: usize = 20;

/// What the page is about.
pub struct Page<'a> {
    /// The inventory's name.
    pub name: &'a str,
    /// All hosts, in node-rank order.
    pub hosts: &'a [String],
    /// Hosts that could not be reached: name, why, what to do next.
    pub lost: &'a [(String, String, String)],
    /// Colours.
    pub style: Style,
    /// What must not be shown.
    pub cleaner: Cleaner,
    /// How long it took.
    pub took: Duration,
}

/// A cell's words with the number of those who agree on something else.
pub fn sentence(cell: &Cell) -> String {
    match cell.agree {
        0 => cell.what.clone(),
        n => format!("{}; {} agree", cell.what, count(n, "host")),
    }
}

/// Who it is about and what was found: `7 hosts agree, gpu03 differs: 535.129 instead of 550.54`.
fn line(group: &Group, names: &str) -> String {
    let cell = &group.cell;
    match (cell.agree, group.hosts.len()) {
        (0, _) if cell.what.is_empty() => names.to_owned(),
        (0, _) => format!("{names}: {}", cell.what),
        (agree, n) => {
            let (agrees, differs) = (if agree == 1 { "agrees" } else { "agree" }, if n == 1 { "differs" } else { "differ" });
            format!("{} {agrees}, {names} {differs}: {}", count(agree, "host"), cell.what)
        }
    }
}

fn mark(level: Level) -> (&'static str, Role) {
    match level {
        Level::Fail => ("FAIL", Role::Bad),
        Level::Warn => ("warn", Role::Warn),
        Level::Pass => ("ok", Role::Ok),
        Level::Skipped => ("-", Role::Dim),
    }
}

/// The page.
pub fn text(page: &Page<'_>, answers: &[Answer]) -> String {
    let mut lines = vec![head(page, answers)];
    lines.extend(matrix(page, answers));
    lines.extend(page.lost.iter().flat_map(|(host, why, hint)| lost(page, host, why, hint)));
    let mut told: Vec<(Level, &Answer, Group)> = Vec::new();
    for answer in answers {
        // What a smoke measured is what it was run for.
        let tells = |g: &Group| g.cell.level > Level::Pass || g.cell.level == Level::Pass && answer.check.name == NAME;
        let mut groups: Vec<Group> = answer.groups().into_iter().filter(tells).collect();
        if groups.len() > SORTS + 1 {
            let more = groups.split_off(SORTS);
            let hosts: Vec<usize> = more.iter().flat_map(|g| g.hosts.iter().copied()).collect();
            let level = more.first().map_or(Level::Warn, |g| g.cell.level);
            let what = format!("the like, in {} other words (--json has them)", more.len());
            let cell = Cell { level, what, hint: String::new(), evidence: Vec::new(), agree: 0 };
            groups.push(Group { hosts, cell });
        }
        told.extend(groups.into_iter().map(|g| (g.cell.level, answer, g)));
    }
    told.sort_by_key(|(level, _, _)| std::cmp::Reverse(*level));
    if !told.is_empty() {
        lines.push(String::new());
    }
    lines.extend(told.iter().flat_map(|(level, answer, group)| finding(page, *level, answer.check.name, group)));
    lines.extend(rest(page, answers));
    lines.join("\n") + "\n"
}

fn head(page: &Page<'_>, answers: &[Answer]) -> String {
    let of = |level| answers.iter().filter(|a| a.level() == level).count();
    let mut parts = vec![format!("CHECK  {}  {}", page.cleaner.line(page.name), count(page.hosts.len(), "host"))];
    let mut add = |n: usize, text: String, role| {
        if n > 0 {
            parts.push(page.style.paint(role, &text));
        }
    };
    add(page.lost.len(), format!("{} unreachable", page.lost.len()), Role::Bad);
    add(of(Level::Fail), format!("{} failed", of(Level::Fail)), Role::Bad);
    add(of(Level::Warn), count(of(Level::Warn), "warning"), Role::Warn);
    add(of(Level::Pass), format!("{} passed", of(Level::Pass)), Role::Ok);
    add(of(Level::Skipped), format!("{} skipped", of(Level::Skipped)), Role::Dim);
    parts.push(span(i64::try_from(page.took.as_millis()).unwrap_or(i64::MAX)));
    parts.join("  ")
}

/// A row for each sort of host, a column for each area.
fn matrix(page: &Page<'_>, answers: &[Answer]) -> Vec<String> {
    let areas: Vec<Area> = Area::ALL.into_iter().filter(|area| answers.iter().any(|a| a.check.area == *area)).collect();
    let mut rows: Vec<(Vec<Option<Level>>, Vec<String>)> = Vec::new();
    for (index, name) in page.hosts.iter().enumerate() {
        let level = |area: &Area| {
            let of = answers.iter().filter(|a| a.check.area == *area).flat_map(|a| &a.cells);
            of.filter(|(host, _)| *host == index).map(|(_, cell)| cell.level).max()
        };
        let row: Vec<Option<Level>> = areas.iter().map(level).collect();
        match rows.iter_mut().find(|(levels, _)| *levels == row) {
            Some((_, names)) => names.push(page.cleaner.line(name)),
            None => rows.push((row, vec![page.cleaner.line(name)])),
        }
    }
    rows.sort_by_key(|(levels, _)| (levels.iter().any(Option::is_some), std::cmp::Reverse(levels.iter().max().copied().flatten())));
    let mut lines = vec![String::new()];
    let titles: String = areas.iter().map(|area| format!("{:<9}", area.word())).collect();
    lines.push(page.style.paint(Role::Dim, format!("  {:<22}{titles}", "hosts").trim_end()));
    let more = rows.len().saturating_sub(ROWS);
    for (levels, names) in rows.into_iter().take(ROWS) {
        let name = cut(&fold(&names), 21);
        let pad = " ".repeat(22_usize.saturating_sub(name.width()));
        let cell = |level: &Option<Level>| {
            let (word, role) = level.map_or(("?", Role::Bad), mark);
            format!("{}{}", page.style.paint(role, word), " ".repeat(9 - word.len()))
        };
        lines.push(format!("  {name}{pad}{}", levels.iter().map(cell).collect::<String>()).trim_end().to_owned());
    }
    lines.extend((more > 0).then(|| format!("  and {more} more sorts of hosts (--json has all)")));
    lines
}

fn lost(page: &Page<'_>, host: &str, why: &str, hint: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    lines.extend(wrapped(&page.cleaner.line(&format!("{host}: {why}")), "AWAY  ", "      "));
    if !hint.is_empty() {
        lines.extend(wrapped(&page.cleaner.line(hint), "      help: ", "            "));
    }
    lines
}

fn finding(page: &Page<'_>, level: Level, name: &str, group: &Group) -> Vec<String> {
    let names: Vec<String> = group.hosts.iter().filter_map(|h| page.hosts.get(*h)).cloned().collect();
    let (word, role) = mark(level);
    let text = page.cleaner.line(&line(group, &fold(&names)));
    let mut lines = wrapped(&text, &format!("{word:<6}{name}: "), "      ");
    if let Some(first) = lines.first_mut() {
        *first = first.replacen(word, &page.style.paint(role, word), 1);
    }
    for line in &group.cell.evidence {
        lines.push(page.style.paint(Role::Dim, &format!("      | {}", cut(&page.cleaner.line(line), WIDTH - 8))));
    }
    if !group.cell.hint.is_empty() {
        lines.extend(wrapped(&page.cleaner.line(&group.cell.hint), "      help: ", "            "));
    }
    lines
}

/// What passed and what was not looked at, in few lines.
fn rest(page: &Page<'_>, answers: &[Answer]) -> Vec<String> {
    let mut lines = vec![String::new()];
    let passed: Vec<&str> = answers.iter().filter(|a| a.level() == Level::Pass && a.check.name != NAME).map(|a| a.check.name).collect();
    if !passed.is_empty() {
        let text = passed.join(" ");
        let mut found = wrapped(&text, "ok    ", "      ");
        if let Some(first) = found.first_mut() {
            *first = first.replacen("ok", &page.style.paint(Role::Ok, "ok"), 1);
        }
        lines.extend(found);
    }
    // Why something was not looked at, once for all checks of which it is the same.
    let mut whys: Vec<(String, Vec<String>, Vec<&str>)> = Vec::new();
    for answer in answers {
        for group in answer.groups().into_iter().filter(|g| g.cell.level == Level::Skipped && !g.cell.what.is_empty()) {
            let names: Vec<String> = group.hosts.iter().filter_map(|h| page.hosts.get(*h)).cloned().collect();
            match whys.iter_mut().find(|(why, hosts, _)| *why == group.cell.what && *hosts == names) {
                Some((_, _, checks)) => checks.push(answer.check.name),
                None => whys.push((group.cell.what.clone(), names, vec![answer.check.name])),
            }
        }
    }
    for (why, names, checks) in whys {
        let everyone = names.len() + page.lost.len() == page.hosts.len();
        let place = if everyone { String::new() } else { format!(" on {}", fold::fold(&names)) };
        let text = page.cleaner.line(&format!("{}{place}: {why}", checks.join(" ")));
        lines.extend(wrapped(&text, "skip  ", "      ").into_iter().map(|l| page.style.paint(Role::Dim, &l)));
    }
    lines
}

/// Words on lines of at most [`WIDTH`] columns; a word that is longer than a line stays whole, so that it can be copied.
fn wrapped(text: &str, first: &str, then: &str) -> Vec<String> {
    let mut lines = vec![first.to_owned()];
    let mut empty = true;
    for word in text.split(' ') {
        let Some(last) = lines.last_mut() else { break };
        if !empty && last.width() + 1 + word.width() > WIDTH {
            lines.push(format!("{then}{word}"));
        } else {
            if !empty {
                last.push(' ');
            }
            last.push_str(word);
        }
        empty = false;
    }
    lines
}

/// For programs.
pub fn json(page: &Page<'_>, answers: &[Answer], outcome: &Outcome) -> serde_json::Value {
    let names = |hosts: &[usize]| hosts.iter().filter_map(|h| page.hosts.get(*h)).map(|n| page.cleaner.line(n)).collect::<Vec<_>>();
    let group = |group: &Group| {
        serde_json::json!({
            "hosts": names(&group.hosts),
            "level": group.cell.level,
            "what": page.cleaner.line(&group.cell.what),
            "agree": group.cell.agree,
            "hint": page.cleaner.line(&group.cell.hint),
            "evidence": group.cell.evidence.iter().map(|line| page.cleaner.line(line)).collect::<Vec<_>>(),
        })
    };
    let check = |answer: &Answer| {
        serde_json::json!({
            "name": answer.check.name,
            "area": answer.check.area.word(),
            "level": answer.level(),
            "results": answer.groups().iter().map(group).collect::<Vec<_>>(),
        })
    };
    let lost = |(host, why, hint): &(String, String, String)| serde_json::json!({ "host": page.cleaner.line(host), "error": page.cleaner.line(why), "hint": page.cleaner.line(hint) });
    serde_json::json!({
        "name": page.name,
        "outcome": outcome,
        "hosts": page.hosts,
        "unreachable": page.lost.iter().map(lost).collect::<Vec<_>>(),
        "seconds": page.took.as_secs_f64(),
        "checks": answers.iter().map(check).collect::<Vec<_>>(),
    })
}

/// Every check with what it looks at.
pub fn list(checks: &[Check]) -> String {
    let mut lines = Vec::new();
    for area in Area::ALL {
        lines.push(area.word().to_owned());
        for check in checks.iter().filter(|check| check.area == area) {
            lines.extend(wrapped(check.looks, &format!("  {:<18}", check.name), &" ".repeat(20)));
        }
    }
    lines.join("\n") + "\n"
}
