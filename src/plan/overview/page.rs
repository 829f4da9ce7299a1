//! Lines of an overview: a label with wrapped text, and commands over several lines.

use unicode_width::UnicodeWidthStr as _;

use crate::text::shell_quote::{quote, quote_path};
use crate::text::translation::Lang;
use crate::text::width::{JOINED, pad_end, truncate_text, wrap_text};

/// Columns of a label.
const LABEL_WIDTH: usize = 11;
/// The prefix of a command.
const COMMAND_INDENT: &str = "  ";
/// The prefix of a command's further lines.
const CONTINUATION_INDENT: &str = "      ";

pub(super) struct OverviewPage {
    lang: Lang,
    columns: usize,
    lines: Vec<String>,
}

impl OverviewPage {
    pub(super) fn new(lang: Lang, columns: usize) -> OverviewPage {
        OverviewPage { lang, columns, lines: Vec::new() }
    }

    pub(super) fn into_text(self) -> String {
        self.lines.into_iter().map(|line| line + "\n").collect()
    }

    /// A line as it is, cut at the page's width.
    pub(super) fn line(&mut self, text: &str) {
        self.lines.push(truncate_text(text, self.columns));
    }

    /// A label and its text on at most `max_lines` lines.
    pub(super) fn row(&mut self, label: &str, text: &str, max_lines: usize) {
        let width = self.columns.saturating_sub(LABEL_WIDTH).max(20);
        let mut wrapped = wrap_text(text, width);
        if wrapped.len() > max_lines {
            wrapped.truncate(max_lines);
            if let Some(last) = wrapped.last_mut() {
                *last = truncate_text(&format!("{last} …"), width);
            }
        }
        for (at, line) in wrapped.iter().enumerate() {
            let label = if at == 0 { label } else { "" };
            let line = line.replace(JOINED, " ");
            self.lines.push(format!("{}{line}", pad_end(label, LABEL_WIDTH)).trim_end().to_owned());
        }
    }

    /// A command on at most `max_lines` lines; a line that is continued ends with `\`. Long words and long commands are shortened; returns whether
    /// this one was.
    pub(super) fn command(&mut self, words: &[String], max_lines: usize) -> bool {
        let limit = self.columns.saturating_sub(CONTINUATION_INDENT.len() + 2).max(20);
        let shown: Vec<String> = words.iter().map(|word| show_word(self.lang, word, limit)).collect();
        let mut is_shortened = shown.iter().any(|word| word.contains('…'));
        let mut lines: Vec<String> = Vec::new();
        let mut line = COMMAND_INDENT.to_owned();
        let mut is_first = true;
        for unit in join_flag_values(&shown, limit) {
            if !is_first && line.width() + 1 + unit.width() + 2 > self.columns {
                lines.push(format!("{line} \\"));
                line = CONTINUATION_INDENT.to_owned();
            } else if !is_first {
                line.push(' ');
            }
            line.push_str(&unit);
            is_first = false;
        }
        lines.push(line);
        if lines.len() > max_lines {
            is_shortened = true;
            // The end has the image, or the script.
            let left_out = max_lines.saturating_sub(2)..lines.len() - 1;
            lines.splice(left_out, [format!("{CONTINUATION_INDENT}{}", self.lang.tr("… (the whole command: -v)"))]);
        }
        self.lines.append(&mut lines);
        is_shortened
    }
}

/// One word as a person types it. A value that only the hosts know is shown as `<from …>`, unquoted.
fn show_word(lang: Lang, word: &str, limit: usize) -> String {
    let lines = word.lines().count();
    if lines > 1 {
        let is_command = |line: &&str| !line.is_empty() && !line.starts_with('#') && !line.starts_with("set -");
        let first = word.lines().map(str::trim).find(is_command).unwrap_or_default();
        let more = lang.tr_fill(" … ({} lines)", &[&lines.to_string()]);
        return format!("'{}{}'", truncate_text(first, limit.saturating_sub(18)).trim_end_matches('…'), more.trim_start());
    }
    let quoted = if has_only_placeholders(word) { word.to_owned() } else { quote_path(word) };
    if quoted.width() <= limit {
        return quoted;
    }
    let end = if quoted.starts_with('\'') { "'" } else { "" };
    format!("{}{end}", truncate_text(&quoted, limit.saturating_sub(end.len())))
}

/// Whether the word has placeholders of ours, and nothing else that a shell would change.
fn has_only_placeholders(word: &str) -> bool {
    // It may be inside another one.
    let folded = word.replace("<host>", "host");
    let (mut rest, mut plain) = (folded.as_str(), String::new());
    while let Some((before, tail)) = rest.split_once('<') {
        let Some((_, after)) = tail.split_once('>').filter(|(name, _)| is_placeholder(name)) else { return false };
        plain.push_str(before);
        plain.push('x');
        rest = after;
    }
    plain.push_str(rest);
    plain.len() < word.len() && quote(&plain) == plain
}

/// The name of a value that differs by host, or that only the hosts know.
fn is_placeholder(name: &str) -> bool {
    ["its address", "run id", "run stamp"].contains(&name)
        || name.starts_with("from ")
        || !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit() || b"-,".contains(&b))
}

/// `--size` and its value stay on one line.
fn join_flag_values(words: &[String], limit: usize) -> Vec<String> {
    let mut units: Vec<String> = Vec::new();
    let mut open_flag = false;
    for word in words {
        let is_flag = word.starts_with('-');
        match units.last_mut() {
            Some(last) if open_flag && !is_flag && last.width() + 1 + word.width() <= limit => {
                last.push(' ');
                last.push_str(word);
            }
            _ => units.push(word.clone()),
        }
        open_flag = is_flag && !word.contains('=');
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &[&str], max_lines: usize) -> (String, bool) {
        let mut page = OverviewPage::new(Lang::En, 40);
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let is_shortened = page.command(&words, max_lines);
        (page.into_text(), is_shortened)
    }

    #[test]
    fn commands_wrap_and_stay_within_the_page() {
        let (text, is_shortened) = command(&["torchrun", "--nnodes=2", "--node_rank=<0-1>", "train.py", "--size", "832*480"], 9);
        assert_eq!(text, "  torchrun --nnodes=2 \\\n      --node_rank=<0-1> train.py \\\n      --size '832*480'\n");
        assert!(!is_shortened);
        let (text, _) = command(&["x", "a -> b, c <- d", "<image> of $HOME; rm", "a<b>c; d", "/o/<run stamp>.mp4"], 9);
        assert_eq!(text, "  x 'a -> b, c <- d' \\\n      '<image> of $HOME; rm' \\\n      'a<b>c; d' /o/<run stamp>.mp4\n");
        let long = "a long prompt that nobody wants to read in an overview of a plan";
        let (text, is_shortened) = command(&["x", "--prompt", long, "y"], 9);
        assert!(is_shortened && text.contains("…'") && text.lines().all(|line| line.width() <= 40), "{text}");
        let (text, is_shortened) = command(&["bash", "-c", "# setup\nset -e\n./train.sh\n"], 9);
        assert!(is_shortened && text == "  bash -c './train.sh… (3 lines)'\n", "{text}");
        let many: Vec<String> = (0..60).map(|n| format!("--flag{n}=1")).collect();
        let (text, is_shortened) = command(&many.iter().map(String::as_str).collect::<Vec<_>>(), 3);
        assert!(is_shortened && text.lines().count() == 3, "{text}");
        assert!(text.contains("… (the whole command: -v)\n") && text.ends_with("--flag59=1\n"), "{text}");
    }

    #[test]
    fn rows_are_bounded() {
        let mut page = OverviewPage::new(Lang::En, 40);
        page.row("hosts", &"gpu01 gpu02 ".repeat(20), 2);
        let text = page.into_text();
        assert!(text.lines().count() == 2 && text.ends_with("…\n") && text.lines().all(|line| line.width() <= 40), "{text}");
    }
}
