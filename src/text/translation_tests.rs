//! Holes, commands and the pairs themselves.

use super::*;

fn table(english: &'static str, chinese: &'static str) -> Pattern {
    Pattern::new(english, chinese)
}

#[test]
fn holes_are_moved_and_foreign_text_stays() {
    let pattern = table("rank {} on {} failed", "{1} 上的 rank {0} 失败");
    let values = pattern.matches("rank 3 on {0} rank failed").expect("a match");
    assert_eq!((pattern.fill(&values, 0).0, pattern.matches("rank 3 ended")), ("{0} rank 上的 rank 3 失败".to_owned(), None));
    assert_eq!(pattern.matches("rank  on"), None, "the literals may not overlap");
}

#[test]
fn digit_holes_take_only_digits() {
    let pattern = table("{#} hosts", "{0} 台主机");
    assert_eq!(pattern.matches("12 hosts").map(|values| pattern.fill(&values, 0).0), Some("12 台主机".to_owned()));
    assert_eq!((pattern.matches("its hosts"), pattern.matches(" hosts")), (None, None));
}

#[test]
fn first_of_adjacent_holes_takes_the_text() {
    let pattern = table("plan: {}{} on {}", "{2}：{0}{1}");
    assert_eq!(pattern.matches("plan: 3 steps on gpu01"), Some(vec!["3 steps", "", "gpu01"]));
    assert_eq!(table("plan: {}{}", "{0}{1}").matches("plan: 3 steps"), Some(vec!["3 steps", ""]));
}

#[test]
fn hosts_before_a_message_and_a_message_after_it_stay_apart() {
    for (english, chinese) in [
        ("gpu[01-02]: /out is missing", "gpu[01-02]：缺少 /out"),
        (
            "torch 2.6 instead of torch (none); numpy 2.2 instead of numpy 2.1",
            "torch 2.6，而不是 torch (none)；numpy 2.2，而不是 numpy 2.1",
        ),
    ] {
        assert_eq!(Lang::Zh.message(english), chinese);
    }
}

#[test]
fn few_letters_match_words_alone() {
    let pattern = table("{} failed", "{0} 项失败");
    let translated = |text| pattern.matches(text).and_then(|values| pattern.translate(&values, 0));
    assert_eq!((translated("3 failed"), translated("this text failed")), (Some("3 项失败".to_owned()), None));
    assert_eq!(Lang::Zh.message("remove it, and do this on that host"), "remove it, and do this on that host");
}

#[test]
fn short_texts_are_no_beginnings_of_foreign_ones() {
    for (ours, chinese) in [
        ("rank 3", "rank 3"),
        ("ranks 0-3,7", "rank 0-3,7"),
        ("exit 137", "退出码 137"),
        ("signal 9 (KILL)", "信号 9（KILL）"),
        ("rank 3 on gpu01", "gpu01 上的 rank 3"),
        ("leftover: a process of this program", "残留：a process of this program"),
    ] {
        assert_eq!(Lang::Zh.message(ours), chinese);
    }
    for foreign in [
        "rank zero only",
        "rank 3 is not initialized",
        "exit code of the hook",
        "exit now",
        "signal handler installed",
        "GPU memory fragmented",
        "rank 0 on a node with no GPU",
        "lacks a driver and a library",
        "has no attribute",
    ] {
        assert_eq!(Lang::Zh.message(foreign), foreign);
    }
}

#[test]
fn templates_keep_their_braces() {
    let text = "write {{ run.stamp }}, which is the same on all hosts";
    assert_eq!(Lang::Zh.message(text), "请写 {{ run.stamp }}，它在所有主机上相同");
}

#[test]
fn lines_keep_indentation_and_translate_labels() {
    let text = "error: no host\n    help: set slurm.login\nwarning: nothing was changed\nfree text\n";
    assert_eq!(Lang::Zh.lines(text), "错误：没有主机\n    建议：设置 slurm.login\n警告：没有做任何更改\nfree text\n");
    assert_eq!(Lang::En.lines(text), text);
}

#[test]
fn chinese_values_take_no_space() {
    let pattern = table("{} on {}", "{1} 上的 {0}。");
    assert_eq!(pattern.fill(&["rank 3", "gpu01"], 0).0, "gpu01 上的 rank 3。");
    assert_eq!(pattern.fill(&["容器", "3 台主机"], 0).0, "3 台主机上的容器。");
}

#[test]
fn completed_commands_stay_complete() {
    let pattern = table("{}: `orchestrate down` removes it", "{0}：用 `orchestrate down` 删除");
    for (given, wanted) in [
        ("a: `orchestrate down` removes it", "a：用 `orchestrate down` 删除"),
        ("a: `orchestrate down x.yaml -F c` removes it", "a：用 `orchestrate down x.yaml -F c` 删除"),
    ] {
        assert_eq!(pattern.matches(given).map(|values| pattern.fill(&values, 0).0), Some(wanted.to_owned()));
    }
    assert_eq!(pattern.matches("a: `orchestrate downstream` removes it"), None);
}

#[test]
fn english_and_unknown_texts_are_unchanged() {
    assert_eq!(Lang::En.tr_fill("{} of {}", &["1", "2"]), "1 of 2");
    assert_eq!(Lang::En.message("nothing was changed"), "nothing was changed");
    assert_eq!(Lang::Zh.message("no text: of this program; nor this"), "no text: of this program; nor this");
    assert_eq!(Lang::Zh.message(&"nothing was changed".repeat(10_000)).len(), 190_000);
}

/// Every pair fills its own holes, and only those.
#[test]
fn pairs_are_consistent() {
    for pattern in &CHINESE.patterns {
        let commands = |text: &str| {
            let starts = text.match_indices(COMMAND_PREFIX).filter_map(|(at, _)| Some(&text[at..at + command_end(&text[at..])?]));
            starts.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(commands(pattern.english), commands(pattern.chinese), "{}", pattern.english);
        let values: Vec<String> = (0..pattern.own_holes()).map(|n| format!("<{n}>")).collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let (filled, _) = pattern.fill(&values, 0);
        assert!(values.iter().all(|value| filled.contains(value)) && !filled.contains(":tr}"), "{} -> {filled}", pattern.english);
    }
}

#[test]
fn counts_take_only_numbers() {
    assert!(!Lang::Zh.message("connection lost: network is unreachable").contains('台'));
    assert_eq!(Lang::Zh.message("train.py failed"), "train.py failed");
    assert_eq!(Lang::Zh.message("3 unreachable"), "3 台不可达");
    assert_eq!(Lang::Zh.message("odd words; help: stranger words"), "odd words; help: stranger words");
}
