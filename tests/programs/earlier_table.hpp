// The table of programs as an earlier page has it, beside what the compiler makes of them now.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace programs {

// The cells of the table for each grid of a program, by family, program and form: its roles, rings, products, threads
// and registers, spilled bytes, seconds and notes.
using Cells = std::vector<std::string>;
using Table = std::map<std::vector<std::string>, std::vector<Cells>>;

// Of the page's lines; rows of any other table are left out.
Table read_table(const std::string& page);

// Rows in which something but registers and seconds differs, as a table whose cells have both: `before → now`.
std::string side_by_side(const Table& before, const Table& now);

}  // namespace programs
