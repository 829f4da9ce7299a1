//! Tables of `ps` and `runs`.

use unicode_width::UnicodeWidthStr as _;

use crate::text::width::pad_end;

/// Columns as wide as their widest cell, two spaces between them.
pub(super) fn format_table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].width()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| pad_end(cell, *width)).collect();
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chinese_cells_are_aligned_by_columns() {
        let rows = [["主机", "运行", "时长"], ["gpu01", "-", "3 s"]].map(|row| row.map(str::to_owned));
        assert_eq!(format_table(&rows), "主机   运行  时长\ngpu01  -     3 s\n");
    }
}
