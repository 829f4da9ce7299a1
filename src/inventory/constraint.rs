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
    let items: Vec<(String, &Place)> = if node.items().is_empty() {
        check.texts(node).into_iter().map(|text| (text, &node.place)).collect()
    } else {
        node.items().iter().filter_map(|item| check.text(item).map(|text| (text, &item.place))).collect()
    };
    let expressions: Vec<(String, &Place)> = items.into_iter().map(|(text, place)| (bare(&text), place)).collect();
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

/// The numbers of processes a host with which every constraint holds, those that use most GPUs first.
pub(super) fn fitting(scope: &Scope<'_>, expressions: &[(String, &Place)]) -> (u32, Vec<u32>) {
    let hosts = scope.facts().names.len();
    let given = (0..hosts).filter_map(|host| scope.given(host)).filter(|gpus| *gpus > 0).min();
    let most = given.unwrap_or_else(|| scope.nproc_per_node().unwrap_or(0).max(TRIED)).min(NPROC_LIMIT);
    let fits = |nproc: &u32| {
        let trial = Scope::new(Facts { nproc: Some(*nproc), ..scope.facts().clone() });
        let mut ignored = Check::default();
        expressions
            .iter()
            .all(|(expression, place)| matches!(verdict(&trial, expression, place, &mut ignored), Verdict::Holds | Verdict::Open))
    };
    (most, (1..=most).rev().filter(fits).collect())
}

fn advice(scope: &Scope<'_>, expressions: &[(String, &Place)]) -> String {
    let (most, fits) = fitting(scope, expressions);
    let hosts = scope.facts().names.len();
    let on = format!("on {hosts} host{}", if hosts == 1 { "" } else { "s" });
    if fits.is_empty() {
        return format!("no launch.nproc_per_node from 1 to {most} {on} satisfies all constraints: change the hosts or the vars");
    }
    let mut listed = fits.iter().take(LISTED).map(u32::to_string).collect::<Vec<_>>().join(", ");
    if fits.len() > LISTED {
        listed.push_str(", …");
    }
    let best = if fits.len() > 1 { ", the one that uses most GPUs first" } else { "" };
    format!("launch.nproc_per_node {listed} {on} satisfies all constraints{best}")
}
