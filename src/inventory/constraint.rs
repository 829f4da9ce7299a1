//! The user's constraints: checked with the values of the run, and when one fails, the numbers of processes with which all would hold.
//!
//! Uses scopes. Knows nothing of launchers.

use super::check::Check;
use super::scope::{Facts, NPROC_LIMIT, Scope};
use super::template::{self, Piece, Term};
use super::tree::{Node, Place, shorten};

/// How many processes a host are tried where nobody knows how many GPUs there are.
const TRIED: u32 = 8;
/// How many numbers a hint lists.
const LISTED: usize = 6;

/// What came of one constraint.
enum Verdict {
    Holds,
    Fails,
    /// Something in it is not known yet.
    Open,
    /// It is wrong, and that was said.
    Wrong,
}

/// Checks all constraints; those with unknown values wait for them.
pub(super) fn check(scope: &Scope<'_>, node: &Node, check: &mut Check) {
    let expressions = expressions(node, check);
    let mut hint = None;
    for (expression, place) in &expressions {
        match verdict(scope, expression, place, check) {
            Verdict::Fails => {
                let hint = hint.get_or_insert_with(|| advice(scope, &expressions));
                check.wrong(
                    place,
                    format!("the constraint `{}` does not hold{}", shorten(expression), values(scope, expression, place)),
                    hint.clone(),
                );
            }
            Verdict::Holds | Verdict::Open | Verdict::Wrong => {}
        }
    }
}

/// The constraints, each with its place.
fn expressions<'a>(node: &'a Node, check: &mut Check) -> Vec<(String, &'a Place)> {
    let items: Vec<(String, &Place)> = if node.items().is_empty() {
        check.texts(node).into_iter().map(|text| (text, &node.place)).collect()
    } else {
        node.items().iter().filter_map(|item| check.text(item).map(|text| (text, &item.place))).collect()
    };
    items.into_iter().map(|(text, place)| (bare(&text), place)).collect()
}

/// The expression alone, also where somebody wrote it in braces.
fn bare(text: &str) -> String {
    match template::pieces(text).ok().flatten().as_deref() {
        Some([Piece::Expression(expression)]) => expression.clone(),
        _ => text.to_owned(),
    }
}

fn verdict(scope: &Scope<'_>, expression: &str, place: &Place, check: &mut Check) -> Verdict {
    match scope.expression(expression, place, None) {
        Term::Unknown(_) => Verdict::Open,
        Term::Wrong => Verdict::Wrong,
        Term::Known(value) => match bool::try_from(value.clone()) {
            Ok(true) if value.kind() == minijinja::value::ValueKind::Bool => Verdict::Holds,
            Ok(false) if value.kind() == minijinja::value::ValueKind::Bool => Verdict::Fails,
            _ => {
                let says = format!(
                    "the constraint `{}` gives {}, which is neither true nor false",
                    shorten(expression),
                    shorten(&value.to_string())
                );
                check.wrong(place, says, "compare it: num_heads % world_size == 0");
                Verdict::Wrong
            }
        },
    }
}

/// `: ulysses_size is 16, num_heads is 40`.
fn values(scope: &Scope<'_>, expression: &str, place: &Place) -> String {
    let environment = template::environment();
    let Ok(compiled) = environment.compile_expression(expression) else { return String::new() };
    let mut names: Vec<String> = compiled.undeclared_variables(false).into_iter().collect();
    names.sort();
    let known: Vec<String> = names
        .iter()
        .filter_map(|name| match scope.expression(name, place, None) {
            Term::Known(value) => Some(format!("{name} is {}", shorten(&value.to_string()))),
            Term::Unknown(_) | Term::Wrong => None,
        })
        .collect();
    if known.is_empty() { String::new() } else { format!(": {}", known.join(", ")) }
}

/// A way to satisfy every constraint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fit {
    /// How many of the hosts, from the first on.
    pub hosts: usize,
    /// `launch.nproc_per_node`.
    pub nproc: u32,
    /// GPUs of all given hosts that would stay idle; `None` where nobody knows how many there are.
    pub idle: Option<u32>,
}

impl Fit {
    /// Worker processes in all.
    pub fn processes(self) -> u32 {
        self.nproc.saturating_mul(u32::try_from(self.hosts).unwrap_or(u32::MAX))
    }
}

impl super::Inventory {
    /// Every way to satisfy all constraints with these hosts, the one that uses most GPUs first, then the one with most hosts; and the
    /// constraints. Works where the constraints fail as the file stands.
    pub fn suggest(&self, known: &super::Known) -> (Vec<String>, Vec<Fit>) {
        let tree = &self.read.tree;
        let facts = Facts {
            tree,
            members: &self.read.members,
            names: self.hosts.iter().map(|host| host.name.as_str()).collect(),
            fabric: self.hosts.iter().map(|host| host.fabric_address.as_deref()).collect(),
            gpus: self.hosts.iter().map(|host| &host.gpus).collect(),
            known,
            nproc: None,
        };
        let scope = Scope::new(facts);
        let expressions = tree.get("constraints").map(|node| expressions(node, &mut Check::default())).unwrap_or_default();
        let mut fits: Vec<Fit> = (1..=self.hosts.len()).flat_map(|hosts| fitting(&scope, &expressions, hosts)).collect();
        fits.sort_by_key(|fit| std::cmp::Reverse((fit.processes(), fit.hosts)));
        (expressions.into_iter().map(|(text, _)| text).collect(), fits)
    }
}

/// The ways with just the first `hosts` hosts, those that use most GPUs first.
fn fitting(scope: &Scope<'_>, expressions: &[(String, &Place)], hosts: usize) -> Vec<Fit> {
    let all: Vec<Option<u32>> = (0..scope.facts().names.len()).map(|host| scope.given(host)).collect();
    let given = all.iter().take(hosts).copied().flatten().filter(|gpus| *gpus > 0).min();
    let total: Option<u32> = all.iter().copied().sum::<Option<u32>>().filter(|total| *total > 0);
    let most = given.unwrap_or_else(|| scope.nproc_per_node().unwrap_or(0).max(TRIED)).min(NPROC_LIMIT);
    let part = Facts {
        members: scope.facts().members.get(..hosts).unwrap_or_default(),
        names: scope.facts().names.iter().take(hosts).copied().collect(),
        ..scope.facts().clone()
    };
    let fits = |nproc: &u32| {
        let trial = Scope::new(Facts { nproc: Some(*nproc), ..part.clone() });
        let mut ignored = Check::default();
        expressions
            .iter()
            .all(|(expression, place)| matches!(verdict(&trial, expression, place, &mut ignored), Verdict::Holds | Verdict::Open))
    };
    let fit = |nproc: u32| {
        let fit = Fit { hosts, nproc, idle: None };
        Fit { idle: total.map(|total| total.saturating_sub(fit.processes())), ..fit }
    };
    (1..=most).rev().filter(fits).map(fit).collect()
}

fn advice(scope: &Scope<'_>, expressions: &[(String, &Place)]) -> String {
    let hosts = scope.facts().names.len();
    let fits = fitting(scope, expressions, hosts);
    let on = |hosts: usize| format!("on {hosts} host{}", if hosts == 1 { "" } else { "s" });
    let Some(best) = fits.first() else {
        let fewer = (1..hosts).rev().flat_map(|hosts| fitting(scope, expressions, hosts)).max_by_key(|fit| fit.processes());
        return match fewer {
            Some(fit) => {
                format!("no launch.nproc_per_node {} satisfies all constraints; {} {} does (--limit)", on(hosts), fit.nproc, on(fit.hosts))
            }
            None => format!("no launch.nproc_per_node {} satisfies all constraints: change the hosts or the vars", on(hosts)),
        };
    };
    let mut listed = fits.iter().take(LISTED).map(|fit| fit.nproc.to_string()).collect::<Vec<_>>().join(", ");
    if fits.len() > LISTED {
        listed.push_str(", …");
    }
    let order = if fits.len() > 1 { ", the one that uses most GPUs first" } else { "" };
    let idle = best.idle.map(|idle| format!(": {} processes, {idle} GPUs idle", best.processes())).unwrap_or_default();
    format!("launch.nproc_per_node {listed} {} satisfies all constraints{order}{idle}", on(hosts))
}
