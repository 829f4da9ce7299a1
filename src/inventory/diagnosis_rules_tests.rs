//! Rules of an inventory, sound and broken.

use std::collections::BTreeMap;

use super::*;
use crate::inventory::localized_template::TemplateValues;

fn read_problems(text: &str) -> Vec<String> {
    let source = InventorySource { name: "rules.yaml".to_owned(), text: text.to_owned() };
    read_rules(&source).map_or_else(|all| all.iter().map(ToString::to_string).collect(), |_| Vec::new())
}

#[test]
fn rule_is_parsed() {
    let text = "- id: quota\n  re: 'quota of (?P<user>\\w+) exceeded'\n  what: { en: 'no space for {user}', zh: '{user} 的配额已满' }\n";
    let source = InventorySource { name: "rules.yaml".to_owned(), text: text.to_owned() };
    let rules = read_rules(&source).expect("good");
    let values = TemplateValues { matched: BTreeMap::from([("user".to_owned(), "li".to_owned())]), ..TemplateValues::default() };
    assert_eq!(rules[0].summary.fill(false, &values), "no space for li");
    assert_eq!(rules[0].summary.fill(true, &values), "li 的配额已满");
    assert_eq!(rules[0].blame, Blame::Cause);
}

#[test]
fn diagnosis_is_file_or_inline_rules() {
    let load = |diagnosis: &str| {
        let text = format!("name: a\nhosts: [gpu01]\nlaunch: {{ command: [train.py] }}\ndiagnosis: {diagnosis}\n");
        Inventory::load(&[InventorySource { name: "a.yaml".to_owned(), text }], &[])
    };
    let found = load("./rules.yaml").expect("good").diagnosis_rule_source().expect("good");
    assert!(matches!(found, Some(DiagnosisRuleSource::File(file)) if file == "./rules.yaml"));
    let found = load("[{ id: x, re: quota, what: full }]").expect("good").diagnosis_rule_source().expect("good");
    assert!(matches!(found, Some(DiagnosisRuleSource::Inline(rules)) if rules[0].id == "x"));
    for (text, expected) in [("[{ id: x, re: 'q(', what: full }]", "diagnosis[0].re: unclosed group"), ("{ a: b }", "expected rules")] {
        let problems = load(text).expect_err("broken");
        assert!(problems.iter().any(|problem| problem.to_string().contains(expected)), "{problems:?}");
    }
}

#[test]
fn broken_rules_report_their_location() {
    for (text, expected) in [
        ("- id: a\n  re: 'x('\n  what: y\n", "rules.yaml:2:7: [0].re: unclosed group"),
        ("- id: a\n  re: '[甲乙]'\n  what: y\n", "rules.yaml:2:7: [0].re: Unicode not allowed here"),
        ("- id: a\n  re: '(?u)\\bx\\b'\n  what: y\n", "rules.yaml:2:7: [0].re: a Unicode word boundary"),
        ("- id: a\n  re: 'x*'\n  what: y\n", "rules.yaml:2:7: [0].re: the pattern matches an empty line"),
        ("- id: a\n  rex: x\n  what: y\n", "rules.yaml:2:3: [0].rex: unknown key `rex`"),
        ("- id: A\n  re: x\n  what: y\n", "rules.yaml:1:7: [0].id: a rule needs an id"),
        ("- id: a\n  role: guilty\n  re: x\n  what: y\n", "rules.yaml:2:9: [0].role: `guilty` is not a role"),
        ("- id: a\n  re: x\n", "rules.yaml:1:3: [0]: the rule has no summary"),
        ("- id: a\n  what: y\n", "rules.yaml:1:3: [0]: the rule has no condition"),
        ("- id: a\n  exit: many\n  what: y\n", "rules.yaml:2:9: [0].exit: `many` is not a number"),
        ("id: a\n", "rules.yaml:1:1: expected a list of rules, found a mapping"),
        ("- { id: a, re: x, what: y }\n- { id: a, re: z, what: y }\n", "[1]: duplicate rule `a`"),
    ] {
        let all = read_problems(text);
        assert!(all.iter().any(|problem| problem.contains(expected)), "{text}\n{all:#?}");
    }
}
